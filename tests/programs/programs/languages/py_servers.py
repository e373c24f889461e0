"""socketserver.ThreadingTCPServer and http.server on loopback with clients in threads."""

import http.client
import http.server
import socket
import socketserver
import threading

from case import check, verdict


class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line.upper())


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = False
    request_queue_size = 128


class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = self.path.encode() * 1000
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def clients(count, body):
    right = []
    threads = [threading.Thread(target=lambda i=i: right.append(body(i))) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(right)


def talk(number):
    with socket.create_connection(server.server_address) as connection:
        file = connection.makefile("rwb")
        right = 0
        for turn in range(30):
            file.write(b"line %d %d\n" % (number, turn))
            file.flush()
            right += file.readline() == b"LINE %d %d\n" % (number, turn)
        return right


def fetch(number):
    connection = http.client.HTTPConnection(*pages.server_address)
    right = 0
    for turn in range(5):
        connection.request("GET", f"/{number}/{turn}")
        right += connection.getresponse().read() == f"/{number}/{turn}".encode() * 1000
    connection.close()
    return right


server = Server(("127.0.0.1", 0), Echo)
pages = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
loops = [threading.Thread(target=each.serve_forever, args=(0.05,)) for each in (server, pages)]
for loop in loops:
    loop.start()
right = clients(40, talk)
check("tcp_server", right == 1200, right)
right = clients(20, fetch)
check("http_server", right == 100, right)
for each in (server, pages):
    each.shutdown()
    each.server_close()
for loop in loops:
    loop.join()
check("shutdown", True)
verdict()
