//! A copy of a crate with a fault in it, whose models are run.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Fault;

/// A workspace of one crate, beside the others that it may depend on.
struct Copy {
    name: &'static str,
    krate: PathBuf,
    target: PathBuf,
}

impl Copy {
    fn new(name: &'static str, krate: &Path) -> Self {
        let workspace = krate.join("../..");
        let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let root = scratch.join(format!("faults-{name}"));
        let _ = fs::remove_dir_all(&root);
        let to = root.join("crates").join(name);
        copy(krate, &to);
        for other in fs::read_dir(workspace.join("crates")).unwrap() {
            let other = other.unwrap();
            if other.file_name() != name {
                let link = root.join("crates").join(other.file_name());
                symlink(other.path().canonicalize().unwrap(), link).unwrap();
            }
        }
        let manifest = fs::read_to_string(workspace.join("Cargo.toml")).unwrap();
        let members = manifest.lines().find(|line| line.starts_with("members = "));
        let all = members.expect("the workspace has members");
        let one = format!(r#"members = ["crates/{name}"]"#);
        fs::write(root.join("Cargo.toml"), manifest.replacen(all, &one, 1)).unwrap();
        fs::copy(workspace.join("Cargo.lock"), root.join("Cargo.lock")).unwrap();
        // What the checker was built into already.
        let target = scratch.parent().unwrap().to_path_buf();
        Copy {
            name,
            krate: to,
            target,
        }
    }

    /// Whether the model passes, and what was said.
    fn passes(&self, model: &str) -> (bool, String) {
        let fast = format!("profile.dev.package.{}.opt-level=0", self.name);
        let output = Command::new(env!("CARGO"))
            // Built in a moment, run in less.
            .args(["--config", &fast])
            .args(["test", "--offline", "--quiet", "--lib", "--", model])
            .current_dir(&self.krate)
            .env("CARGO_TARGET_DIR", &self.target)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.contains("\nrunning 1 test\n"), "{model}: {said}");
        (output.status.success(), said)
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Puts each fault by itself into the crate called `name` at `krate`.
pub fn check(name: &'static str, krate: &str, faults: &[Fault]) {
    super::find(krate, faults);
    let copy = Copy::new(name, Path::new(krate));
    let mut missed = Vec::new();
    for &(model, file, text, fault) in faults {
        let path = copy.krate.join("src").join(file);
        let right = fs::read_to_string(&path).unwrap();
        fs::write(&path, right.replace(text, fault)).unwrap();
        let (passes, said) = copy.passes(model);
        println!("{model}: {}", if passes { "missed" } else { "caught" });
        if passes {
            missed.push(format!("{model}, {file}: {text}\n{said}"));
        }
        fs::write(&path, right).unwrap();
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
