//! Unmodified programs under the `passthrough` library are rewritten, and behave as in a native run.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let built = test
        .parent()
        .and_then(Path::parent)
        .expect("target/<profile>/deps")
        .join("examples")
        .join(name);
    assert!(
        built.exists(),
        "cargo builds the examples with the tests: {}",
        built.display()
    );
    built
}

fn library() -> PathBuf {
    example("libpassthrough.so")
}

fn native(program: &str, args: &[&str]) -> Option<Output> {
    Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .output()
        .ok()
}

fn rewritten(program: &str, args: &[&str], mode: &str) -> Output {
    Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .env("LD_PRELOAD", library())
        .env("UPCALL_PASSTHROUGH", mode)
        .output()
        .expect("it ran natively")
}

/// Runs the program natively and under the library in each mode, and compares.
fn same(program: &str, args: &[&str]) {
    let Some(expected) = native(program, args) else {
        println!("skipped: {program} is not installed");
        return;
    };
    for mode in ["", "clobber", "trap"] {
        let got = rewritten(program, args, mode);
        let error = String::from_utf8_lossy(&got.stderr);
        assert_eq!(
            got.status, expected.status,
            "{program} in mode {mode:?}: {error}"
        );
        assert!(
            got.stdout == expected.stdout,
            "{program} in mode {mode:?}: stdout differs"
        );
        assert!(
            got.stderr == expected.stderr,
            "{program} in mode {mode:?}: {error}"
        );
    }
}

#[test]
fn the_library_really_rewrites_libc() {
    let output = Command::new("/bin/true")
        .env("LD_PRELOAD", library())
        .env("UPCALL_LOG", "sites")
        .output()
        .expect("/bin/true");
    let log = String::from_utf8_lossy(&output.stderr);
    let line = log
        .lines()
        .find(|l| l.contains("/libc.so.6"))
        .unwrap_or_else(|| panic!("no line for libc in {log}"));
    println!("{line}");
    let counts: Vec<usize> = line
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|w| w.parse().ok())
        .collect();
    let (patched, found) = (counts[counts.len() - 2], counts[counts.len() - 1]);
    assert!(
        found > 300 && patched + 1 == found,
        "all but rt_sigreturn: {line}"
    );
}

#[test]
fn ls_lists_a_tree() {
    same("ls", &["-lR", "/usr/share/doc"]);
}

#[test]
fn python_runs_threads_and_subprocesses() {
    let script = "
import subprocess, threading, os, signal, time
print(subprocess.check_output(['echo', 'hello']))
r = subprocess.run('echo a | tr a b; exit 3', shell=True, capture_output=True)
print(r.returncode, r.stdout)
done = []
threads = [threading.Thread(target=lambda i=i: done.append(i)) for i in range(100)]
[t.start() for t in threads]
[t.join() for t in threads]
print(sorted(done))
pid = os.fork()
if pid == 0: os._exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
got = []
signal.signal(signal.SIGALRM, lambda *a: got.append(a[0]))
signal.setitimer(signal.ITIMER_REAL, 0.01)
signal.pause()
print(got)
try: subprocess.run(['/nonexistent'])
except FileNotFoundError as e: print(e)
";
    same("python3", &["-c", script]);
}

#[test]
fn bash_runs_pipelines_traps_and_jobs() {
    let script = "
for i in 1 2 3; do seq 1000 | sort -r | head -3 | (cat; exit $i); echo ${PIPESTATUS[@]}; done
trap 'echo usr1' USR1; kill -USR1 $BASHPID
x=$(seq 3); echo $x; true & wait $!; echo $?
(exit 7); echo $?; cat <<< text; kill -9 $BASHPID";
    same("bash", &["-c", script]);
}

#[test]
fn xz_compresses_with_threads() {
    let libc = "/lib/x86_64-linux-gnu/libc.so.6";
    if Path::new(libc).exists() {
        same(
            "xz",
            &["-1", "-T2", "--block-size=200000", "-k", "-c", libc],
        );
    } else {
        println!("skipped: {libc} is not there");
    }
}

#[test]
fn git_reads_its_own_repository() {
    same("git", &["--no-pager", "log", "--stat"]);
}

#[test]
fn perl_handles_signals_and_errors() {
    let script = "$SIG{ALRM} = sub { print qq(alarm\\n) }; alarm 1; select undef, undef, undef, 9;
        print `echo hi`; die qq(x\\n)";
    same("perl", &["-e", script]);
}

fn last_number(text: &str, after: &str) -> Option<f64> {
    let line = text.lines().find(|l| l.starts_with(after))?;
    line[after.len()..].split_whitespace().next()?.parse().ok()
}

#[test]
fn a_rewritten_call_keeps_every_register_that_the_kernel_keeps() {
    let program = example("registers");
    let program = program.to_str().expect("a path in UTF-8");
    let expected = native(program, &[]).expect("it was just built");
    assert!(expected.status.success(), "natively: {expected:?}");
    for mode in ["", "clobber", "trap"] {
        let got = rewritten(program, &[], mode);
        let (out, error) = (
            String::from_utf8_lossy(&got.stdout),
            String::from_utf8_lossy(&got.stderr),
        );
        assert!(got.status.success(), "mode {mode:?}: {out}{error}");
        assert_eq!(got.stdout, expected.stdout, "mode {mode:?}");
        assert!(error.contains("rewritten: true"), "mode {mode:?}: {error}");
        let trapped = format!("trapped: {}", mode == "trap" && dispatch_works());
        assert!(error.contains(&trapped), "mode {mode:?}: {error}");
        let cost = |name| last_number(&error, name).expect("a cost");
        println!(
            "mode {mode:?}: stub {} ns, wide {} ns",
            cost("xmm:"),
            cost("wide:")
        );
    }
}

fn dispatch_works() -> bool {
    match upcall_guest::rewrite::sud::probe() {
        Ok(()) => true,
        Err(why) => {
            println!("skipped in part: {why}");
            false
        }
    }
}

#[test]
fn every_instruction_of_the_way_unwinds_to_the_caller() {
    let program = example("unwind");
    let program = program.to_str().expect("a path in UTF-8");
    for mode in ["", "clobber", "trap"] {
        let got = rewritten(program, &[], mode);
        let error = String::from_utf8_lossy(&got.stderr);
        assert!(got.status.success(), "mode {mode:?}: {error}");
        let outside: usize = error
            .split_once("steps, ")
            .and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok())
            .unwrap_or_else(|| panic!("no count in {error}"));
        assert!(outside > 50, "the call went through a stub: {error}");
        println!("mode {mode:?}: {}", error.trim());
    }
}
