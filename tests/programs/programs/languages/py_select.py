"""select, poll, epoll and selectors, in threads, with timeouts; and asyncio with threads."""

import asyncio
import os
import select
import selectors
import socket
import threading
import time

from case import check, verdict


def later(descriptor, byte=b"x"):
    timer = threading.Timer(0.01, os.write, (descriptor, byte))
    timer.start()
    return timer


def in_thread(body):
    result = []
    thread = threading.Thread(target=lambda: result.append(body()))
    thread.start()
    thread.join()
    return result[0]


reader, writer = os.pipe()


def by_select():
    timer = later(writer)
    ready = select.select([reader], [], [])[0]
    timer.join()
    return ready == [reader] and os.read(reader, 1) == b"x"


def by_poll():
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    timer = later(writer)
    ready = poll.poll()
    timer.join()
    return ready == [(reader, select.POLLIN)] and os.read(reader, 1) == b"x"


def by_epoll():
    with select.epoll() as epoll:
        epoll.register(reader, select.EPOLLIN)
        timer = later(writer)
        ready = epoll.poll()
        timer.join()
        return ready == [(reader, select.EPOLLIN)] and os.read(reader, 1) == b"x"


def timeouts():
    before = time.monotonic()
    nothing = select.select([reader], [], [], 0.02)[0]
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    nothing += poll.poll(20)
    return nothing == [] and time.monotonic() - before >= 0.04


check("select", in_thread(by_select))
check("poll", in_thread(by_poll))
check("epoll", in_thread(by_epoll))
check("timeouts", in_thread(timeouts))


def echo_server(pairs):
    selector = selectors.DefaultSelector()
    for here, _ in pairs:
        selector.register(here, selectors.EVENT_READ)
    left = len(pairs)
    while left:
        for key, _ in selector.select():
            if data := key.fileobj.recv(100):
                key.fileobj.sendall(data)
            else:
                selector.unregister(key.fileobj)
                left -= 1


pairs = [socket.socketpair() for _ in range(20)]
server = threading.Thread(target=echo_server, args=(pairs,))
server.start()
right = []


def client(there):
    for turn in range(50):
        there.sendall(b"%d" % turn)
        right.append(there.recv(100) == b"%d" % turn)
    there.close()


threads = [threading.Thread(target=client, args=(there,)) for _, there in pairs]
for thread in threads + [server]:
    if thread is not server:
        thread.start()
for thread in threads + [server]:
    thread.join()
check("selectors", sum(right) == 1000, sum(right))


async def asynchronous():
    async def handle(reader, writer):
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()

    async def talk(number):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"hello %d\n" % number)
        answer = await reader.readline()
        writer.close()
        return answer == b"HELLO %d\n" % number

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    answers = await asyncio.gather(*(talk(i) for i in range(50)))
    blocked = await asyncio.gather(*(asyncio.to_thread(time.sleep, 0.005) for _ in range(20)))
    child = await asyncio.create_subprocess_exec("echo", "child", stdout=asyncio.subprocess.PIPE)
    out, _ = await child.communicate()
    server.close()
    return all(answers) and len(blocked) == 20 and out == b"child\n"


check("asyncio", asyncio.run(asynchronous()))
verdict()
