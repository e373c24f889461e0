//! What is rewritten when, with and without a directory in which what a scan finds is kept.

use crate::real;
use program_tests::program::Program;

/// Where nothing can be kept, where nothing is kept yet, and where something is.
#[test]
fn the_first_thread_finds_the_rest_rewritten() {
    let name = "the_first_thread_finds_the_rest_rewritten";
    let Some((case, path)) = real(name, "sites_late.c") else {
        return;
    };
    let natively = Program::new(&path).run(&case.fresh("native"), None);
    let expected = b"ok sites_late\nok sites_late serve\n";
    assert!(natively.stdout == expected, "{}", natively.talk());
    let home = case.fresh("home");
    let missing = home.join("missing");
    for home in [&missing, &home, &home] {
        let program = Program::new(&path)
            .arg("run")
            .env("HOME", home)
            .env("XDG_RUNTIME_DIR", "")
            .env("XDG_CACHE_HOME", "");
        let outcome = case.run_launched(&program, &[]);
        let fine = outcome.status.success() && outcome.stdout == expected;
        assert!(
            fine,
            "{}: {}\n{}",
            home.display(),
            outcome.ending(),
            outcome.talk()
        );
    }
    assert!(!missing.exists(), "no home directory is made");
    assert!(home.join(".cache/upcall/sites").is_dir());
}
