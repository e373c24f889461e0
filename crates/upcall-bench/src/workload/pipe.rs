//! `pipe_exchange`: a round trip of one byte between two threads over two blocking pipes.
//!
//! Those of the crate upcall are its own type of pipe. The I/O test of Danjean et al. 2000 in its smallest form: every read blocks in the kernel until
//! the other thread has written, so a runtime that multiplexes threads must get its processor back
//! twice a round trip. One figure `ns` is the mean over `operations` round trips.

use super::posix::now_ns;
use super::threads::{Reader, Threads, Writer};
use super::{Failure, Figures, Params};

pub fn run<T: Threads>(params: &Params) -> Result<Figures, Failure> {
    let samples = params.number("samples", 5)?;
    let operations = params.number("operations", 5000)?;
    let mut figures = Figures::default();
    for sample in 0..=samples {
        let (first_in, second_out) = T::pipe()?;
        let (second_in, first_out) = T::pipe()?;
        let (done_in, done_out) = T::pipe()?;
        let begin = now_ns();
        let first = T::spawn(move || {
            let ok = (0..operations).all(|_| first_out.write_byte() && first_in.read_byte());
            if ok {
                done_out.write_byte();
            }
        });
        let second = T::spawn(move || {
            let _ = (0..operations).all(|_| second_in.read_byte() && second_out.write_byte());
        });
        T::join(first);
        T::join(second);
        let each = (now_ns() - begin) as f64 / operations as f64;
        if !done_in.read_byte() {
            return Err(Failure::Failed(
                "a byte was lost on the way through a pipe".into(),
            ));
        }
        if sample > 0 {
            figures.push("ns", each);
        }
    }
    Ok(figures)
}
