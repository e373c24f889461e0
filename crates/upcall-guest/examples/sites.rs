//! Lists the system-call sites of ELF files: `sites FILE…`. The counts go to stdout, one line a
//! file; what would be refused goes to stderr.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[path = "../tests/support/mod.rs"]
mod support;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn main() {}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn main() {
    for path in std::env::args().skip(1) {
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(why) => {
                eprintln!("{path}: {why}");
                std::process::exit(1);
            }
        };
        let start = std::time::Instant::now();
        let scan = upcall_guest::rewrite::site::scan(&support::image(&bytes), &[]);
        let took = start.elapsed();
        let windows = scan.sites.iter().filter_map(|s| s.window.as_ref().ok());
        let (mut good, mut quiet, mut wide) = (0, 0, 0);
        for window in windows {
            good += 1;
            quiet += usize::from(window.is_quiet());
            wide += usize::from(window.wide);
        }
        let unknown = scan.sites.iter().filter(|s| s.number.is_none()).count();
        println!(
            "{path}: {} sites, {good} with a window, {quiet} quiet, {wide} wide, \
             {unknown} of unknown number, {} other pairs, {took:.1?}",
            scan.sites.len(),
            scan.other_pairs,
        );
        if let Some(cancel) = scan.cancel {
            println!("{path}: cancellable call at {:x?}", cancel.0);
        }
        for site in &scan.sites {
            if let Err(reason) = &site.window {
                eprintln!("  {:#x} (call {:?}): {reason}", site.address, site.number);
            }
        }
    }
}
