"""Where a request ends: a doubt is refused, one meaning arrives as it is meant."""

import json
from functools import partial

from builders import until
from listeners.http_messages import CHUNKED, INFER, SMUGGLED, chunk, request
from listeners.http_messages import HEAD as POST
from listeners.http_scene import Scene, in_scene

REFUSED: dict[str, bytes] = {
    "length and chunks": POST
    + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    + SMUGGLED,
    "chunks and length": POST
    + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"
    + SMUGGLED,
    "two hosts": POST + b"Host: y\r\n\r\n" + SMUGGLED,
    "the same host twice": POST + b"Host: x\r\n\r\n" + SMUGGLED,
    "no host": POST.replace(b"Host: x\r\n", b"X-Host: x\r\n") + b"\r\n" + SMUGGLED,
    "a host that is none": POST.replace(b"Host: x", b"Host: x/y") + b"\r\n" + SMUGGLED,
    "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    "the same length twice": POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde",
    "a list of lengths": POST + b"Content-Length: 5, 5\r\n\r\nabcde",
    "a length with a sign": POST + b"Content-Length: +1\r\n\r\na",
    "a negative length": POST + b"Content-Length: -1\r\n\r\na",
    "a hexadecimal length": POST + b"Content-Length: 0x1\r\n\r\na",
    "an empty length": POST + b"Content-Length:\r\n\r\n" + SMUGGLED,
    "a length of 2^64": POST + b"Content-Length: 18446744073709551616\r\n\r\n",
    "a length in two words": POST + b"Content-Length: 1 2\r\n\r\na",
    "a folded line": POST + b"X-A: 1\r\n Content-Length: 5\r\n\r\n" + SMUGGLED,
    "a folded length": POST + b"Content-Length:\r\n 5\r\n\r\n" + SMUGGLED,
    "a line that ends with LF": POST + b"X-A: 1\nContent-Length: 5\r\n\r\n" + SMUGGLED,
    "a head that ends with LF": POST + b"Content-Length: 5\n\n" + SMUGGLED,
    "a line that ends with CR": POST + b"X-A: 1\rContent-Length: 5\r\n\r\n" + SMUGGLED,
    "space before the colon": POST + b"Content-Length : 5\r\n\r\n" + SMUGGLED,
    "space before the name": POST[:-2] + b"\r\n Content-Length: 5\r\n\r\n" + SMUGGLED,
    "no colon": POST + b"Content-Length 5\r\n\r\n" + SMUGGLED,
    "no name": POST + b": 5\r\n\r\n" + SMUGGLED,
    "a name with a control": POST + b"Content-\x00Length: 5\r\n\r\n" + SMUGGLED,
    "a value with a NUL": POST + b"X-A: \x00\r\nContent-Length: 0\r\n\r\n",
    "another coding": POST + b"Transfer-Encoding: gzip\r\n\r\n" + SMUGGLED,
    "identity": POST + b"Transfer-Encoding: identity\r\n\r\n" + SMUGGLED,
    "a coding behind chunks": POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "a coding before chunks": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunks twice": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunks in two lines": POST
    + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks with a tail": POST + b"Transfer-Encoding: chunkedx\r\n\r\n0\r\n\r\n",
    "chunks in quotes": POST + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "a coding that Connection hides": POST
    + b"Connection: transfer-encoding\r\nTransfer-Encoding: gzip\r\n\r\n"
    + SMUGGLED,
    "no version": f"POST {INFER}\r\nHost: x\r\nContent-Length: 5\r\n\r\n".encode() + SMUGGLED,
    "HTTP/0.9": f"POST {INFER} HTTP/0.9\r\nContent-Length: 5\r\n\r\n".encode() + SMUGGLED,
    "HTTP/2.0": f"POST {INFER} HTTP/2.0\r\nContent-Length: 5\r\n\r\n".encode() + SMUGGLED,
    "HTTP/1.2": f"POST {INFER} HTTP/1.2\r\nContent-Length: 5\r\n\r\n".encode() + SMUGGLED,
    "HTTP/2 itself": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "nonsense": b"nonsense\r\nHost: x\r\n\r\n",
    "a method of its own": b"INFER / HTTP/1.1\r\n\r\n",
    "CONNECT": b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n" + SMUGGLED,
    "a target that is none": b"POST %%% HTTP/1.1\r\nHost: x\r\n\r\n",
    "a space in the target": b"POST /v2/models/m /infer HTTP/1.1\r\nHost: x\r\n\r\n" + SMUGGLED,
    "a space before the method": b" " + POST + b"Content-Length: 5\r\n\r\n" + SMUGGLED,
}


CAUSES = {
    "length and chunks": "Transfer-Encoding can't be present with Content-Length",
    "chunks and length": "Content-Length can't be present with Transfer-Encoding",
    "two lengths": "Duplicate Content-Length",
    "HTTP/2 itself": "it starts an HTTP/2 connection",
}


@in_scene()
async def test_a_request_that_leaves_a_doubt_ends_the_connection(scene: Scene) -> None:
    for line in (f"POST {INFER} ", "GET /v2/models/m/config "):
        for fault, data in REFUSED.items():
            client = await scene.connect()
            await client.send(data.replace(POST.split(b"HTTP")[0], line.encode(), 1))
            received = await client.rest()
            assert received.startswith(b"HTTP/1.1 400 Bad Request\r\n"), (line, fault)
            assert received.count(b"HTTP/1.1 ") == 1, (line, fault)
            assert b"servegate-error: bad_request" in received, (line, fault)
            assert b"connection: close" in received, (line, fault)
            if fault in CAUSES:
                error = json.loads(received.partition(b"\r\n\r\n")[2])["error"]
                assert error.startswith(f"the request is not valid HTTP/1.1: {CAUSES[fault]}")
    assert scene.a.requests == []


BROKEN_CHUNKS: dict[str, bytes] = {
    "no number": b"x\r\n",
    "a sign": b"+1\r\na\r\n",
    "a prefix": b"0x1\r\na\r\n",
    "an empty length": b"\r\n",
    "a length of 2^64": b"1" + b"0" * 16 + b"\r\n",
    "LF behind the length": b"1\na\r\n",
    "LF behind the chunk": b"1\r\na\n",
    "more than the chunk": b"1\r\nab\r\n",
    "space behind the length": b"1 \r\na\r\n",
    "a trailer that is none": b"0\r\nno colon\r\n\r\n",
    "a length behind the chunks": b"0\r\nContent-Length: 9\r\n\r\n",
}


@in_scene()
async def test_chunks_that_leave_a_doubt_never_complete_a_request(scene: Scene) -> None:
    for count, (fault, data) in enumerate(BROKEN_CHUNKS.items(), 1):
        client = await scene.connect()
        await client.send(CHUNKED + chunk(bytes(300_000)))
        on_its_way = partial(lambda count: len(scene.a.requests) == count, count)
        await until(on_its_way)  # to the replica, before it breaks
        await client.send(data + SMUGGLED)
        assert (await client.rest()).startswith(b"HTTP/1.1 400 Bad Request\r\n"), fault
        await until(lambda: scene.a.open == 0)
        assert not scene.a.requests[-1].is_complete, fault
    assert len(scene.a.requests) == len(BROKEN_CHUNKS)


@in_scene()
async def test_a_request_to_the_application_that_breaks_is_answered_once(scene: Scene) -> None:
    head = CHUNKED.replace(INFER.encode(), b"/v2/nothing")
    for fault in (*BROKEN_CHUNKS.values(), b"1;" + b"a" * 70_000):
        for is_late in (False, True):
            client = await scene.connect()
            await client.send(head)
            if is_late:  # it is answered without its body
                assert (await client.answer()).status == 404
            await scene.feed(client, fault + SMUGGLED, 60_000)
            assert (await client.rest()).count(b"HTTP/1.1 4") == (not is_late), (fault, is_late)
    assert scene.a.requests == []


ONE_MEANING: dict[str, bytes] = {
    "an absolute target": b"POST http://evil/v2/models/m/infer HTTP/1.1\r\nHost: x\r\n"
    b"Content-Length: 2\r\n\r\n{}",
    "an empty host": POST.replace(b"Host: x", b"Host:") + b"Content-Length: 2\r\n\r\n{}",
    "a query": POST.replace(b"/infer", b"/infer?a=/n/infer") + b"Content-Length: 2\r\n\r\n{}",
    "a fragment": POST.replace(b"/infer", b"/infer#x") + b"Content-Length: 2\r\n\r\n{}",
    "a length with zeros": POST + b"Content-Length: 0002\r\n\r\n{}",
    "a length with spaces": POST + b"Content-Length:   2  \r\n\r\n{}",
    "lines before it": b"\r\n\r\n" + request(),
    "chunks with extensions": POST
    + b"Transfer-Encoding: Chunked\r\n\r\n2;a=b\r\n{}\r\n0;c\r\n\r\n",
    "chunks with trailers": POST
    + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nHost: y\r\nX-A: 1\r\n\r\n",
    "a hidden length": POST + b"Connection: content-length\r\nContent-Length: 2\r\n\r\n{}",
}


@in_scene()
async def test_a_request_with_one_meaning_arrives_as_it_is_meant(scene: Scene) -> None:
    for kind, data in ONE_MEANING.items():
        for step in (1, 1 << 16):
            client = await scene.connect()
            await client.send(*(data[at : at + step] for at in range(0, len(data), step)))
            assert (await client.answer()).status == 200, (kind, step)
            assert (await client.ask(request(b"next"))).status == 200, (kind, step)
            first, second = scene.a.requests[-2:]
            assert (first.body, second.body) == (b"{}", b"next"), (kind, step)
            assert first.path == "/v2/models/m/versions/1/infer"
            assert first.header("host") == f"127.0.0.1:{scene.a.port}"
            assert first.header("x-a") is None
