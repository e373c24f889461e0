//! `pipe_exchange`: a round trip of one byte between two threads over two blocking pipes.
//!
//! The I/O test of Danjean et al. 2000 in its smallest form: every read blocks in the kernel until
//! the other thread has written, so a runtime that multiplexes threads must get its processor back
//! twice a round trip. One figure `ns` is the mean over `operations` round trips.

use super::posix::{now_ns, pipe, read_byte, write_byte};
use super::threads::Threads;
use super::{Failure, Figures, Params};

pub fn run<T: Threads>(params: &Params) -> Result<Figures, Failure> {
    let samples = params.number("samples", 5)?;
    let operations = params.number("operations", 5000)?;
    let mut figures = Figures::default();
    for sample in 0..=samples {
        let (first_in, second_out) = pipe()?;
        let (second_in, first_out) = pipe()?;
        let (done_in, done_out) = pipe()?;
        let begin = now_ns();
        let first = T::spawn(move || {
            let ok = (0..operations).all(|_| write_byte(&first_out) && read_byte(&first_in));
            if ok {
                write_byte(&done_out);
            }
        });
        let second = T::spawn(move || {
            let _ = (0..operations).all(|_| read_byte(&second_in) && write_byte(&second_out));
        });
        T::join(first);
        T::join(second);
        let each = (now_ns() - begin) as f64 / operations as f64;
        if !read_byte(&done_in) {
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
