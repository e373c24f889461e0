# Threads, queues, conditions, timeouts, sockets, fork, signals.
require 'socket'
require 'timeout'
require 'thread'
require 'open3'
queue = SizedQueue.new(10)
sum = 0
lock = Mutex.new
consumers = 4.times.map { Thread.new { while (n = queue.pop) != :end; lock.synchronize { sum += n }; end } }
producers = 4.times.map { |k| Thread.new { 2000.times { |i| queue << i + k } } }
producers.each(&:join)
4.times { queue << :end }
consumers.each(&:join)
puts "sum #{sum}"
server = TCPServer.new('127.0.0.1', 0)
serving = Thread.new { 50.times { s = server.accept; Thread.new { s.write(s.gets); s.close } } }
lines = 50.times.map { |i| Thread.new { TCPSocket.open('127.0.0.1', server.addr[1]) { |s| s.puts i; s.gets.to_i } } }.map(&:value)
serving.join
puts "lines #{lines.sum}"
puts(begin; Timeout.timeout(0.05) { sleep 100 }; rescue Timeout::Error; 'timeout'; end)
puts "children #{5.times.map { |i| fork { exit i } }.map { |p| Process.wait2(p)[1].exitstatus }.sort.join ' '}"
puts "open3 #{20.times.map { |i| Open3.capture2('cat', stdin_data: i.to_s)[0].to_i }.sum}"
got = Queue.new
trap('USR1') { got << 1 }
Process.kill('USR1', $$)
puts "signal #{got.pop}"
t = Thread.new { sleep }
Thread.pass until t.stop?
t.kill
t.join
ractors = 4.times.map { |i| Ractor.new(i) { |n| (1..50_000).sum { |x| x * n } } } rescue []
puts "ractors #{ractors.map(&:take).sum}"
GC.stress = false
puts "gc #{8.times.map { Thread.new { 20_000.times { 'x' * 100 }; 1 } }.sum(&:value)}"
