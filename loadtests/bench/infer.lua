-- Arguments: the file of the body, "fresh" or "same" (a traceparent for every call, or none), and
-- the header fields as name=value. The last line printed is read by generators.py.

function init(arguments)
  local file = assert(io.open(arguments[1], "rb"))
  wrk.method, wrk.body = "POST", file:read("*a")
  file:close()
  for place = 3, #arguments do
    local name, value = arguments[place]:match("^([^=]+)=(.*)$")
    wrk.headers[name] = value
  end
  if arguments[2] == "fresh" then
    math.randomseed(os.time())
    request = function()
      wrk.headers["traceparent"] = string.format("00-%08x%08x%08x%08x-%08x%08x-01",
        math.random(0, 0x7fffffff), math.random(0, 0x7fffffff), math.random(0, 0x7fffffff),
        math.random(0, 0x7fffffff), math.random(0, 0x7fffffff), math.random(0, 0x7fffffff))
      return wrk.format()
    end
  else
    local ready = wrk.format()
    request = function() return ready end
  end
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    'measured {"calls": %d, "microseconds": %d, "failed": %d, "p50": %.1f, "p99": %.1f}\n',
    summary.requests, summary.duration,
    errors.status + errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99)))
end
