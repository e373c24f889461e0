//! What programs that compute are given: made by rule, so it is the same on every machine.
//!
//! An input has its name when it is whole. It is made anew only if it is missing.

use std::fmt::Write as _;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::{Builder, TempDir};

use super::{Order, make};
use crate::child::Failure;

/// A kind of input, with its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Megabytes of words and some noise, about as compressible as prose.
    Text(usize),
    /// Pictures of a moving pattern, 640 x 360, not compressed.
    Frames(usize),
    /// The same coded as AV1.
    Coded(usize),
    /// Files in C with a makefile. A build puts its files beside them, and makes all anew.
    Sources(usize),
}

const WIDTH: usize = 640;
const HEIGHT: usize = 360;

impl Input {
    /// The same, made for a run that shows only that everything runs.
    fn short(self) -> Self {
        match self {
            Self::Text(_) => Self::Text(1),
            Self::Frames(_) => Self::Frames(6),
            Self::Coded(_) => Self::Coded(6),
            Self::Sources(_) => Self::Sources(2),
        }
    }

    fn name(self) -> String {
        match self {
            Self::Text(size) => format!("text-{size}"),
            Self::Frames(count) => format!("frames-{count}.y4m"),
            Self::Coded(count) => format!("coded-{count}.ivf"),
            Self::Sources(count) => format!("sources-{count}"),
        }
    }

    /// The path of the input, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// It cannot be made.
    pub fn made(self, order: &Order) -> Result<PathBuf, Failure> {
        let one = if order.short { self.short() } else { self };
        one.whole(order)
    }

    fn whole(self, order: &Order) -> Result<PathBuf, Failure> {
        let path = order.inputs.join(self.name());
        if path.exists() {
            return Ok(path);
        }
        let failed =
            |error: std::io::Error| Failure::Failed(format!("{}: {error}", path.display()));
        std::fs::create_dir_all(order.inputs).map_err(failed)?;
        // With its end: coders go by that.
        let draft = Builder::new()
            .prefix(".draft-")
            .tempdir_in(order.inputs)
            .map_err(failed)?;
        let file = draft.path().join(self.name());
        match self {
            Self::Text(size) => text(&file, size).map_err(failed)?,
            Self::Frames(count) => frames(&file, count).map_err(failed)?,
            Self::Sources(count) => sources(&file, count).map_err(failed)?,
            Self::Coded(count) => {
                let plain = Self::Frames(count).whole(order)?;
                let mut command = Command::new("ffmpeg");
                command.args(["-loglevel", "error", "-y", "-i"]);
                command.arg(plain);
                command.args(["-c:v", "libsvtav1", "-preset", "10"]);
                command.arg(&file);
                make(command, order).map_err(no_coder)?;
            }
        }
        rename(draft, &file, &path).map_err(failed)?;
        Ok(path)
    }
}

/// Without the coder the decoder has no input, which is no failure of what is measured.
fn no_coder(failure: Failure) -> Failure {
    match failure {
        Failure::Failed(why) => Failure::Skipped(format!(
            "ffmpeg cannot code its input with libsvtav1: {why}"
        )),
        other => other,
    }
}

fn rename(draft: TempDir, file: &Path, path: &Path) -> std::io::Result<()> {
    std::fs::rename(file, path)?;
    draft.close()
}

/// Numbers by rule (Marsaglia's xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % most
    }
}

fn text(path: &Path, megabytes: usize) -> std::io::Result<()> {
    let mut numbers = Numbers(1);
    let letter = |numbers: &mut Numbers| b'a' + numbers.below(26) as u8;
    let words: Vec<Vec<u8>> = (0..4000)
        .map(|_| {
            let length = 2 + numbers.below(8);
            (0..length).map(|_| letter(&mut numbers)).collect()
        })
        .collect();
    let mut out = BufWriter::new(std::fs::File::create(path)?);
    let mut written = 0;
    while written < megabytes << 20 {
        let word = &words[numbers.below(words.len())];
        out.write_all(word)?;
        out.write_all(b" ")?;
        written += word.len() + 1;
        if numbers.below(50) == 0 {
            let noise: Vec<u8> = (0..20).map(|_| numbers.below(256) as u8).collect();
            out.write_all(&noise)?;
            written += noise.len();
        }
    }
    out.flush()
}

/// Bars that move over a slope, with noise: YUV4MPEG2, the format that coders read without further words.
fn frames(path: &Path, count: usize) -> std::io::Result<()> {
    let mut numbers = Numbers(1);
    let mut out = BufWriter::new(std::fs::File::create(path)?);
    writeln!(out, "YUV4MPEG2 W{WIDTH} H{HEIGHT} F30:1 Ip A1:1 C420")?;
    let mut row = [0_u8; WIDTH];
    for frame in 0..count {
        writeln!(out, "FRAME")?;
        for y in 0..HEIGHT {
            for (x, pixel) in row.iter_mut().enumerate() {
                let bar = if (x + 3 * frame + y / 4) % 64 < 20 {
                    60
                } else {
                    0
                };
                *pixel = (40 + x / 8 + y / 6 + bar + numbers.below(6)) as u8;
            }
            out.write_all(&row)?;
        }
        for plane in 0..2 {
            for y in 0..HEIGHT / 2 {
                let half = &mut row[..WIDTH / 2];
                for (x, pixel) in half.iter_mut().enumerate() {
                    *pixel = (100 + (x + frame * (plane + 1)) / 12 + y / 10) as u8;
                }
                out.write_all(half)?;
            }
        }
    }
    out.flush()
}

fn sources(directory: &Path, count: usize) -> std::io::Result<()> {
    std::fs::create_dir(directory)?;
    let mut objects = String::new();
    for number in 0..count {
        let mut code =
            String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
        for part in 0..60 {
            let _ = writeln!(
                code,
                "int work_{number}_{part}(const char *text, int most) {{\n  int sum = {part};\n  \
                 for (int i = 0; i < most && text[i]; i++)\n    sum = sum * 31 + (text[i] ^ (i * {number}));\n  \
                 return sum % 7 ? sum : (int)strlen(text);\n}}"
            );
        }
        std::fs::write(directory.join(format!("part{number}.c")), code)?;
        let _ = write!(objects, " part{number}.o");
    }
    let rules = format!("all:{objects}\n%.o: %.c\n\t$(CC) -O2 -c -o $@ $<\n");
    std::fs::write(directory.join("Makefile"), rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_the_same_each_time() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        for name in ["one", "other"] {
            text(&path(name), 1).unwrap();
        }
        let [one, other] = ["one", "other"].map(|name| std::fs::read(path(name)).unwrap());
        assert_eq!(one, other);
        assert!((1 << 20..(1 << 20) + 100).contains(&one.len()));
        frames(&path("frames"), 2).unwrap();
        let all = std::fs::read(path("frames")).unwrap();
        let head = all.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        assert_eq!(all.len() - head, 2 * (6 + WIDTH * HEIGHT * 3 / 2));
    }

    #[test]
    fn a_makefile_names_every_file() {
        let place = tempfile::tempdir().unwrap();
        let made = place.path().join("sources");
        sources(&made, 3).unwrap();
        let rules = std::fs::read_to_string(made.join("Makefile")).unwrap();
        assert!(rules.starts_with("all: part0.o part1.o part2.o\n"));
        assert_eq!(std::fs::read_dir(made).unwrap().count(), 4);
    }
}
