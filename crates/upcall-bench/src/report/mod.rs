//! `upcall report`: one page of the figures of `upcall bench`.
//!
//! 1. `read` reads the files of a directory, and names what it cannot read.
//! 2. `model` makes tables of the records: bounds judged, others compared with ours (`compare`), what the papers published
//!    beside them.
//! 3. `plots` chooses what is drawn, `draw` draws it.
//! 4. `page` makes one page of all that, and `write` puts it into its place when it is whole.

mod args;
mod compare;
mod draw;
mod loads;
mod model;
mod page;
mod plots;
mod read;
mod write;

use crate::problem::Problem;
pub use args::ReportArgs;
use model::Report;

/// The name of the page in its directory.
const PAGE: &str = "report.html";

/// Makes the page that `args` ask for; says on standard error what was left out of it, and returns the path.
///
/// # Errors
///
/// A [`Problem`] if there are no results, or the page cannot be written.
pub fn run(args: &ReportArgs) -> Result<String, Problem> {
    let directory = &args.directory;
    let report = Report::of(read::directory(directory)?);
    for complaint in &report.complaints {
        eprintln!("upcall report: {complaint}");
    }
    let headlines = plots::headlines(&report);
    let papers = plots::of_papers(&report);
    let page = page::page(&report, &headlines, &papers);
    write::file(directory, PAGE, &page)?;
    if args.plots {
        for plot in headlines.iter().chain(&papers) {
            write::file(directory, &format!("{}.svg", plot.id), &plot.svg)?;
        }
    }
    Ok(directory.join(PAGE).display().to_string())
}
