"""What the pages of load tests add to the common style: lines, marks, and numbers in columns."""

STYLE = """
:root { --second: #b8590f; --third: #6b4fa0; --fourth: #1c7f86; --mark: #7a4b9c; --doubt: #9a6700;
  --sand: #fdf4dc }
@media (prefers-color-scheme: dark) { :root { --second: #eca05a; --third: #b39ae6;
  --fourth: #59c2c7; --mark: #c79be8; --doubt: #e3b341; --sand: #322a14 } }

.lead { margin: -.7rem 0 1rem }
.verdict.doubt { border-left-color: var(--doubt); background: var(--sand) }
.verdict.doubt strong { color: var(--doubt) }
.verdict.calm { border-left-color: var(--bar); background: var(--card) }
.verdict ul { margin-top: .5rem } small.bad { color: var(--bad) }
ul.judged { list-style: none; padding: 0; margin: 0; display: flex; flex-wrap: wrap;
  gap: .2rem 1.6rem }
.findings li { margin: .25rem 0 } .findings li::marker { color: var(--soft) }
dl.tiles { grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)) }
dl.tiles dd { font-size: 1.25rem; line-height: 1.35 }
dl.facts { margin: 0 0 1.2rem; display: grid; gap: .5rem 1.4rem;
  grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)) }
dl.facts.wide { grid-template-columns: 1fr }
dl.facts:last-child { margin: 0 } dl.facts div { min-width: 0 }
dl.facts dd { font-variant-numeric: tabular-nums }
h3 { margin: 0 0 .2rem } section > p { margin: 0 0 .8rem } section > p:last-child { margin: 0 }
figcaption { margin-top: .5rem } figcaption, section > p.soft { font-size: .87rem }

th.n, td.n { text-align: right; padding: .35rem 0 .35rem 1rem; white-space: nowrap;
  font-variant-numeric: tabular-nums }
td.n + td:not(.n), th.n + th:not(.n) { padding-left: 1.4rem }
thead th { white-space: nowrap } thead tr:last-child > th { border-bottom: 1px solid var(--line) }
tbody th { font-size: inherit; color: inherit; min-width: 5rem; overflow-wrap: break-word }
td:not(.n) { min-width: 3.5rem; overflow-wrap: break-word } td.n + td:not(.n) { min-width: 11rem }
tbody tr:last-child > th { border-bottom: 0 }
.table:focus-visible, summary:focus-visible { outline: 2px solid var(--bar); outline-offset: 2px }
section > .table + p { margin-top: .8rem }
section > .table + figure, section > .table + dl.facts { margin-top: 1.4rem }

svg.chart { width: calc(100% - 4.75rem); max-width: none; margin-left: 4rem; overflow: visible }
svg.chart.whole, svg.chart.strip { width: 100%; margin-left: 0 }
svg.chart.inset { width: calc(100% - 6.5rem); margin-left: 4.75rem }
svg.in { max-width: none; overflow: visible } svg.in * { vector-effect: non-scaling-stroke }
svg text { font-variant-numeric: tabular-nums }
svg .line { fill: none; stroke: var(--bar); stroke-width: 1.75; stroke-linejoin: round;
  stroke-linecap: round }
svg .line.p99, svg .line.c1 { stroke: var(--second) } svg .line.c2 { stroke: var(--third) }
svg .line.c3 { stroke: var(--fourth) } svg .line.c4 { stroke: var(--soft) }
svg .line.ended { stroke-width: 1.25 }
svg .line.intended { stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 5 4;
  stroke-linecap: butt }
svg .block { fill: var(--bar); fill-opacity: .75; shape-rendering: crispEdges }
svg .block.right { fill-opacity: .22 } svg .block.failed { fill: var(--bad); fill-opacity: 1 }
svg .block.gap { fill: var(--second); fill-opacity: .16; shape-rendering: auto }
svg .block.c1 { fill: var(--second) } svg .block.c2 { fill: var(--third) }
svg .block.c3 { fill: var(--fourth) } svg .block.c4 { fill: var(--soft) }
svg line.mark { stroke: var(--mark); stroke-dasharray: 2 3 } svg text.mark { fill: var(--mark) }
svg text.number { font-weight: 600 }
svg rect.hover { fill: transparent } svg rect.hover:hover { fill: var(--ink); fill-opacity: .08 }
svg .whisker { stroke: var(--bar); stroke-width: 2 } svg circle { fill: var(--bar) }
svg .one { stroke: var(--soft); stroke-dasharray: 3 3 }
svg .whisker.good { stroke: var(--good) } svg circle.good { fill: var(--good) }
svg .whisker.bad { stroke: var(--bad) } svg circle.bad { fill: var(--bad) }
svg .whisker.calm { stroke: var(--soft) } svg circle.calm { fill: var(--soft) }
svg rect.part { fill: var(--of); stroke: var(--card); stroke-width: 1 }
svg text.inside { fill: var(--card); font-weight: 600 }
.part-lag { --of: var(--second) } .part-between { --of: var(--fourth) }
.part-gateway { --of: var(--third) } .part-queue { --of: var(--bad) }
.part-input { --of: #7fa3cf } .part-infer { --of: var(--bar) } .part-output { --of: #9db8d8 }

ul.legend { list-style: none; padding: 0; margin: .1rem 0 .3rem; display: flex; flex-wrap: wrap;
  gap: .1rem 1.1rem; font-size: .8rem; color: var(--soft) }
ul.legend i { display: inline-block; width: 1.1em; height: 0; vertical-align: .25em;
  margin-right: .45em; border-top: .2em solid var(--of, var(--bar)) }
ul.legend .p99, ul.legend .c1, ul.legend .gap { border-color: var(--second) }
ul.legend .c2 { border-color: var(--third) } ul.legend .c3 { border-color: var(--fourth) }
ul.legend .c4, ul.legend .intended { border-color: var(--soft) }
ul.legend .good { border-color: var(--good) }
ul.legend .bad, ul.legend .failed { border-color: var(--bad) }
ul.legend .intended { border-top-style: dashed; border-top-width: .15em }
ul.legend .ended { border-top-width: .12em }
ul.legend .right, ul.legend .failed, ul.legend .gap, ul.legend .dot, ul.legend [class^="part-"] {
  border-top-width: .7em; vertical-align: -.05em }
ul.legend .right, ul.legend .gap { opacity: .35 }
ol.marks { margin: .5rem 0 .9rem; padding-left: 1.4rem; font-size: .87rem }
ol.marks li::marker { color: var(--mark); font-weight: 600 }
figure.joined { margin-bottom: .4rem }
.many { display: grid; grid-template-columns: repeat(auto-fill, minmax(16rem, 1fr)); gap: 1.2rem }
.many figure { margin: 0; min-width: 0; display: flex; flex-direction: column }
.many figure h3 { margin: 0 } .many svg.chart { width: calc(100% - 4.25rem); margin-top: auto }
.two { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 0 1rem }
table.forest td, table.forest th { vertical-align: middle; padding-top: 0; padding-bottom: 0 }
table.forest td.strip { width: 55%; padding-right: 1rem } table.forest small { display: block }
.span { white-space: nowrap } th.pair { text-align: center; padding-right: 0 }
code.to { display: inline-block; min-width: 15rem }
details { margin: 0 0 1rem }
summary { cursor: pointer; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; padding: .7rem 1.1rem; margin: 0 0 1rem }
summary strong { margin-right: .8rem }

@media (min-width: 44.01rem) { ol.marks.narrow, svg text.narrow { display: none } }
@media (max-width: 44rem) {
  body { padding: 1rem .6rem 2rem } section, .verdict { padding: .9rem .8rem }
  svg text.wide { display: none } .two { grid-template-columns: minmax(0, 1fr) }
  svg.chart { width: calc(100% - 4rem); margin-left: 3.4rem }
  dl.tiles { grid-template-columns: repeat(auto-fit, minmax(7.5rem, 1fr)); gap: .5rem }
  .table tbody th { position: sticky; left: 0; background: var(--card) }
  table.forest td.strip { min-width: 7rem; padding-right: .5rem }
}
@media print {
  body { max-width: none; background: none; padding: 0 } section { border-color: #bbb }
  svg.chart *, ul.legend i { print-color-adjust: exact; -webkit-print-color-adjust: exact }
  figure, .verdict, tr, dl.tiles, li { break-inside: avoid } h2, h3 { break-after: avoid }
  details::details-content { content-visibility: visible; block-size: auto }
}
"""
