(* Domains and systhreads of OCaml 5: parallel sums with collections, a queue between threads, effects. *)
let rec tree n = if n = 0 then [] else n :: tree (n - 1)

let sum_of_trees seed =
  let total = ref 0 in
  for i = 1 to 400 do
    total := !total + List.fold_left ( + ) 0 (tree ((seed + i) mod 500))
  done;
  !total

let queue = Queue.create ()
let mutex = Mutex.create ()
let filled = Condition.create ()

let put x =
  Mutex.lock mutex;
  Queue.push x queue;
  Condition.signal filled;
  Mutex.unlock mutex

let rec take () =
  Mutex.lock mutex;
  while Queue.is_empty queue do Condition.wait filled mutex done;
  let x = Queue.pop queue in
  Mutex.unlock mutex;
  x

type _ Effect.t += Next : int Effect.t

let counts body =
  let n = ref 0 in
  Effect.Deep.match_with body ()
    { retc = Fun.id; exnc = raise;
      effc = (fun (type a) (e : a Effect.t) ->
        match e with
        | Next -> Some (fun (k : (a, _) Effect.Deep.continuation) -> incr n; Effect.Deep.continue k !n)
        | _ -> None) }

let () =
  let domains = List.init 3 (fun i -> Domain.spawn (fun () -> sum_of_trees i)) in
  Printf.printf "domains %d\n" (List.fold_left (fun sum d -> sum + Domain.join d) 0 domains);
  let count = Atomic.make 0 in
  let adders = List.init 3 (fun _ -> Domain.spawn (fun () -> for _ = 1 to 50000 do Atomic.incr count done; Gc.full_major ())) in
  List.iter Domain.join adders;
  Printf.printf "atomic %d\n" (Atomic.get count);
  let senders = List.init 4 (fun i -> Thread.create (fun () -> for j = 1 to 250 do put (i * j); if j mod 50 = 0 then Thread.delay 0.001 done) ()) in
  let total = ref 0 in
  for _ = 1 to 1000 do total := !total + take () done;
  List.iter Thread.join senders;
  Printf.printf "queue %d\n" !total;
  let per_domain = List.init 2 (fun i -> Domain.spawn (fun () ->
    let sum = Atomic.make 0 in
    let threads = List.init 3 (fun k -> Thread.create (fun () -> for _ = 1 to 1000 do ignore (Atomic.fetch_and_add sum k); if Random.int 100 = 0 then Thread.yield () done) ()) in
    List.iter Thread.join threads; Atomic.get sum + i)) in
  Printf.printf "threads of domains %d\n" (List.fold_left (fun sum d -> sum + Domain.join d) 0 per_domain);
  let read, write = Unix.pipe () in
  let child = Unix.create_process "/bin/echo" [| "echo"; "child" |] Unix.stdin write Unix.stderr in
  let text = Bytes.create 10 in
  let length = Unix.read read text 0 10 in
  ignore (Unix.waitpid [] child);
  Printf.printf "%s" (Bytes.sub_string text 0 length);
  Printf.printf "effects %d\n" (counts (fun () -> let sum = ref 0 in for _ = 1 to 1000 do sum := !sum + Effect.perform Next done; !sum))
