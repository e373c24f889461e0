//! The command line of `upcall report`.

use std::path::PathBuf;

use clap::Args;

/// Make one HTML page of what upcall bench has measured: tables, plots, the papers' figures
///
/// The page is DIR/report.html. It loads nothing from elsewhere. Two commands make it: upcall bench -o DIR/results.jsonl, and
/// this one.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = NOTES)]
pub struct ReportArgs {
    /// The directory with files of upcall bench -o, whose names end in .jsonl
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// Write each plot to a file of its own, too: DIR/NAME.svg
    #[arg(long)]
    pub plots: bool,
}

const NOTES: &str = "\
A file may have been cut off, and may be of an older version: what can be read of it is shown,
and the page names the rest. Where several runs have the same variant, each has its table, the
newest first, and the plots are of the newest.

Exit status:
  0    the page is written
  125  it is not, wrong usage included";
