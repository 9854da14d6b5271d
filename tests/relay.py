"""A relay before a server, which a test can have cut a connection at a given word."""

import contextlib
import socket
import threading
from collections.abc import Iterator


class Relay:
    """Passes bytes on to a port. Once it is `armed`, the answer to the word does not come back."""

    def __init__(self, port: int, word: bytes) -> None:
        self._target = ("127.0.0.1", port)
        self._word = word
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.armed = False
        self._cuts = False

    def run(self) -> None:
        """Serve until `close`."""
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._target)
                except ConnectionRefusedError:
                    client.close()  # as whoever is not there would have refused it
                    continue
                for start, end in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=(start, end), daemon=True).start()

    def aim(self, port: int) -> None:
        """New connections go to another port from now on."""
        self._target = ("127.0.0.1", port)

    def close(self) -> None:
        """Take no more connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _pass_on(self, start: socket.socket, end: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := start.recv(65536):
                if self._cuts:  # this is the answer to the word
                    self._cuts = False
                    end.shutdown(socket.SHUT_RDWR)
                    break
                if self.armed and self._word in data:
                    self.armed, self._cuts = False, True
                end.sendall(data)
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def relay(port: int, word: bytes) -> Iterator[Relay]:
    """A relay in a thread of its own."""
    made = Relay(port, word)
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        yield made
    finally:
        made.close()
        thread.join()
