//! Bodies as a text:
//!
//! ```text
//! nbody 1            what this is, and the version of the form
//! bodies 2           how many lines follow the next one
//! time 0.5           how much time has passed
//! 0.5 1 0 0 0 1 0    mass, position (x y z), velocity (x y z); the gravitational constant is 1
//! 0.5 -1 0 0 0 -1 0
//! ```
//!
//! Words are divided by white space; a `#` begins a remark, which goes to the end of the line; empty lines do
//! not count. Numbers are those of Rust's `f64`, and written so that they are read again exactly.

use std::fmt::Write;

use super::body::Body;

/// The version that is written, and the only one that is read.
const VERSION: &str = "1";

/// The text of some bodies.
#[must_use]
pub fn write(bodies: &[Body], time: f64) -> String {
    let mut text = format!("nbody {VERSION}\nbodies {}\ntime {time}\n", bodies.len());
    for Body {
        mass,
        position: [x, y, z],
        velocity: [u, v, w],
    } in bodies
    {
        // A text takes everything.
        let _ = writeln!(text, "{mass:e} {x:e} {y:e} {z:e} {u:e} {v:e} {w:e}");
    }
    text
}

/// The bodies of a text, and the time that has passed.
///
/// # Errors
///
/// What is wrong, with the number of the line.
pub fn read(text: &str) -> Result<(Vec<Body>, f64), String> {
    let lines = text.lines().zip(1usize..).filter_map(|(line, number)| {
        let words: Vec<_> = line.split('#').next()?.split_whitespace().collect();
        (!words.is_empty()).then_some((words, number))
    });
    let mut lines = lines.into_iter();
    let mut heading = |name: &str| {
        let (words, number) = lines
            .next()
            .ok_or_else(|| format!("ends before the line `{name} ...`"))?;
        match words[..] {
            [first, value] if first == name => Ok((value.to_owned(), number)),
            _ => Err(format!("line {number}: expected `{name} ...`")),
        }
    };
    let (version, number) = heading("nbody")?;
    if version != VERSION {
        return Err(format!(
            "line {number}: version {version}, and not {VERSION}"
        ));
    }
    let (count, number) = heading("bodies")?;
    let count: usize = count
        .parse()
        .map_err(|_| format!("line {number}: {count} is no number of bodies"))?;
    let (time, number) = heading("time")?;
    let finite = |word: &str, number: usize| {
        let value = word.parse::<f64>().ok().filter(|value| value.is_finite());
        value.ok_or_else(|| format!("line {number}: {word} is not a number"))
    };
    let time = finite(&time, number)?;
    let mut bodies = Vec::new();
    for (words, number) in lines {
        let values = words.iter().map(|word| finite(word, number));
        let values: Vec<f64> = values.collect::<Result<_, _>>()?;
        let [mass, x, y, z, u, v, w] = values[..] else {
            return Err(format!(
                "line {number}: {} numbers, and not 7",
                values.len()
            ));
        };
        if mass <= 0.0 {
            return Err(format!("line {number}: a mass of {mass}"));
        }
        bodies.push(Body {
            mass,
            position: [x, y, z],
            velocity: [u, v, w],
        });
    }
    if bodies.len() != count {
        return Err(format!("{} bodies, and not {count}", bodies.len()));
    }
    Ok((bodies, time))
}

#[cfg(test)]
mod tests {
    use super::super::body::plummer;
    use super::*;

    #[test]
    fn what_is_written_is_read_exactly() {
        let bodies = plummer(100, 3);
        assert_eq!(read(&write(&bodies, 0.1)), Ok((bodies, 0.1)));
    }

    #[test]
    fn remarks_and_empty_lines_do_not_count() {
        let text = "# a pair\n\nnbody 1 # the first\nbodies 1\ntime 2\n 1 2 3 4 5 6 7 # one\n";
        let (bodies, time) = read(text).unwrap();
        assert_eq!(
            (bodies[0].mass, bodies[0].velocity, time),
            (1.0, [5.0, 6.0, 7.0], 2.0)
        );
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let good = "nbody 1\nbodies 1\ntime 0\n1 2 3 4 5 6 7\n";
        assert!(read(good).is_ok());
        for (from, to, why) in [
            ("nbody 1", "nbody 2", "line 1: version 2"),
            ("nbody 1", "bodies 1", "line 1: expected `nbody"),
            ("bodies 1", "bodies x", "line 2: x"),
            ("bodies 1", "bodies 2", "1 bodies, and not 2"),
            ("time 0\n", "", "line 3: expected `time"),
            ("1 2 3 4 5 6 7", "1 2 3 4 5 6", "line 4: 6 numbers"),
            ("1 2 3 4 5 6 7", "1 2 3 4 5 6 NaN", "line 4: NaN"),
            ("1 2 3 4 5 6 7", "0 2 3 4 5 6 7", "line 4: a mass of 0"),
        ] {
            let error = read(&good.replace(from, to)).unwrap_err();
            assert!(error.starts_with(why), "{to}: {error}");
        }
        assert_eq!(read("").unwrap_err(), "ends before the line `nbody ...`");
    }
}
