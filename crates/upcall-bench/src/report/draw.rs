//! Draws bars and lines as SVG.
//!
//! A plot is read in black and white, and by a screen reader: each bar has its name and value beside it, lines have marks of
//! different shapes, and the description has all values as text. No font is loaded: names of families only are in the file.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// What is larger is no figure of anything here, and would make a plot of nothing else.
const MOST: f64 = 1e15;
const WIDTH: u32 = 720;
/// The library writes a size as four fifths of it.
const FONT: (&str, i32) = ("sans-serif", 16);
const TITLE: (&str, i32) = ("sans-serif", 20);

/// A drawing.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Its name, also that of its file.
    pub id: &'static str,
    pub svg: String,
}

/// Bars under one label.
#[derive(Clone, Debug)]
pub struct Group {
    pub label: String,
    pub bars: Vec<Bar>,
}

#[derive(Clone, Debug)]
pub struct Bar {
    pub name: String,
    pub value: f64,
    /// The value as it is written.
    pub text: String,
}

/// A line through points.
#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// The axis of the values.
#[derive(Clone, Copy, Debug)]
pub struct Axis<'a> {
    /// What it shows, and which way is better.
    pub label: &'a str,
    /// Whether each step is ten times the one before.
    pub logarithmic: bool,
    /// A value that is marked by a line.
    pub mark: Option<f64>,
    /// How a value is written at the axis.
    pub text: fn(f64) -> String,
}

/// The fill of a runtime: ours dark, the native one white, others grey.
fn fill(name: &str) -> RGBColor {
    match name {
        "upcall" => RGBColor(0x10, 0x3f, 0x7a),
        "crate" => RGBColor(0x4f, 0x86, 0xc6),
        "nptl" => WHITE,
        _ => RGBColor(0xc4, 0xc4, 0xc4),
    }
}

fn is_drawable(value: f64, axis: &Axis) -> bool {
    value.is_finite() && value.abs() <= MOST && (!axis.logarithmic || value >= 1.0 / MOST)
}

/// Draws bars from left to right; nothing if there is no value.
pub fn bars(id: &'static str, title: &str, axis: Axis, groups: &[Group]) -> Option<Plot> {
    let mut groups = groups.to_vec();
    for group in &mut groups {
        group.bars.retain(|bar| is_drawable(bar.value, &axis));
    }
    groups.retain(|group| !group.bars.is_empty());
    let at = |value: f64| match axis.logarithmic {
        true => value.log10(),
        false => value,
    };
    let all = groups.iter().flat_map(|group| &group.bars);
    let values: Vec<f64> = all
        .map(|bar| at(bar.value))
        .chain(axis.mark.map(at))
        .collect();
    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let smallest = values.iter().copied().fold(f64::INFINITY, f64::min);
    if groups.is_empty() {
        return None;
    }
    let (from, to) = match axis.logarithmic {
        true => (
            smallest.floor() - 0.2,
            largest + 0.3 * (largest - smallest).max(1.0),
        ),
        false if largest > 0.0 => (0.0, largest * 1.3),
        false => (0.0, 1.0),
    };
    let rows: usize = groups.iter().map(|group| group.bars.len() + 1).sum();
    let height = 92 + 18 * rows as u32;
    let svg = on_text(height, |root| {
        let mut chart = ChartBuilder::on(root)
            .caption(title, TITLE)
            .margin(8)
            .margin_right(16)
            .x_label_area_size(40)
            .y_label_area_size(150)
            .build_cartesian_2d(from..to, rows as f64..0.0)?;
        let label = |value: &f64| match axis.logarithmic {
            true if value.fract() != 0.0 => String::new(),
            true => (axis.text)(10f64.powf(*value)),
            false => (axis.text)(*value),
        };
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .y_labels(0)
            .x_labels(if axis.logarithmic {
                (to - from) as usize + 2
            } else {
                6
            })
            .x_label_formatter(&label)
            .x_desc(axis.label)
            .light_line_style(TRANSPARENT)
            .label_style(FONT)
            .draw()?;
        let mut row = 0.0;
        let right = FONT
            .into_text_style(root)
            .pos(Pos::new(HPos::Right, VPos::Center));
        let left = right.pos(Pos::new(HPos::Left, VPos::Center));
        for group in &groups {
            let (x, y) = chart.backend_coord(&(from, row + 0.5));
            root.draw(&Text::new(group.label.clone(), (x - 144, y), left.clone()))?;
            row += 1.0;
            for bar in &group.bars {
                let end = at(bar.value).max(from);
                let corners = [(from, row + 0.12), (end, row + 0.88)];
                let inside = Rectangle::new(corners, fill(&bar.name).filled());
                chart.draw_series([inside, Rectangle::new(corners, BLACK.stroke_width(1))])?;
                let (x, y) = chart.backend_coord(&(from, row + 0.5));
                root.draw(&Text::new(bar.name.clone(), (x - 6, y), right.clone()))?;
                let (x, y) = chart.backend_coord(&(end, row + 0.5));
                root.draw(&Text::new(bar.text.clone(), (x + 5, y), left.clone()))?;
                row += 1.0;
            }
        }
        if let Some(mark) = axis.mark.map(at) {
            let line = vec![(mark, 0.0), (mark, row)];
            chart.draw_series([PathElement::new(line, BLACK.stroke_width(1))])?;
        }
        Ok(())
    });
    let mut description = format!("Bars. {}.", axis.label);
    for group in &groups {
        let bars: Vec<_> = group
            .bars
            .iter()
            .map(|bar| format!("{} {}", bar.name, bar.text))
            .collect();
        description += &format!(" {}: {}.", group.label, bars.join(", "));
    }
    Some(finish(id, title, description, &svg))
}

/// Draws lines over numbers; nothing if there is no point.
pub fn lines(
    id: &'static str,
    title: &str,
    axis: Axis,
    x_label: &str,
    lines: &[Line],
) -> Option<Plot> {
    let mut lines = lines.to_vec();
    for line in &mut lines {
        line.points.retain(|(_, y)| is_drawable(*y, &axis));
    }
    lines.retain(|line| !line.points.is_empty());
    let points = || lines.iter().flat_map(|line| &line.points);
    let (low, high) = points().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), (x, _)| {
        (low.min(*x), high.max(*x))
    });
    let top = points().fold(axis.mark.unwrap_or(0.0), |top, (_, y)| top.max(*y));
    if lines.is_empty() {
        return None;
    }
    let side = ((high - low) * 0.05).max(0.25);
    let svg = on_text(358, |root| {
        let top = if top > 0.0 { top * 1.1 } else { 1.0 };
        let mut chart = ChartBuilder::on(root)
            .caption(title, TITLE)
            .margin(8)
            .margin_right(120)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(low - side..high + side, 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_desc(x_label)
            .y_desc(axis.label)
            .x_labels(10)
            .y_labels(6)
            .x_label_formatter(&|x| {
                if x.fract() == 0.0 {
                    format!("{x:.0}")
                } else {
                    String::new()
                }
            })
            .y_label_formatter(&|y| (axis.text)(*y))
            .light_line_style(TRANSPARENT)
            .label_style(FONT)
            .draw()?;
        for (number, line) in lines.iter().enumerate() {
            let width = if line.name == "upcall" { 3 } else { 1 };
            chart.draw_series(LineSeries::new(
                line.points.iter().copied(),
                BLACK.stroke_width(width),
            ))?;
            for point in &line.points {
                let place = chart.backend_coord(point);
                mark(root, number, place, &line.name)?;
            }
            let (x, y) = (WIDTH as i32 - 104, 48 + 20 * number as i32);
            mark(root, number, (x, y), &line.name)?;
            let style = FONT
                .into_text_style(root)
                .pos(Pos::new(HPos::Left, VPos::Center));
            root.draw(&Text::new(line.name.clone(), (x + 12, y), style))?;
        }
        Ok(())
    });
    let mut description = format!("Lines. {}, over {x_label}.", axis.label);
    for line in &lines {
        let all: Vec<_> = line
            .points
            .iter()
            .map(|(x, y)| format!("{} at {x:.0}", (axis.text)(*y)))
            .collect();
        description += &format!(" {}: {}.", line.name, all.join(", "));
    }
    Some(finish(id, title, description, &svg))
}

type Canvas<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// The mark of the line with this number.
fn mark<'a>(root: &Canvas<'a>, number: usize, place: (i32, i32), name: &str) -> Drawn<'a> {
    let inside = fill(name).filled();
    let edge = BLACK.stroke_width(1);
    let (x, y) = place;
    let corners = match number % 4 {
        0 => {
            root.draw(&Circle::new(place, 5, inside))?;
            return root.draw(&Circle::new(place, 5, edge));
        }
        1 => vec![
            (x - 5, y - 5),
            (x + 5, y - 5),
            (x + 5, y + 5),
            (x - 5, y + 5),
        ],
        2 => vec![(x, y - 6), (x + 6, y + 5), (x - 6, y + 5)],
        _ => vec![(x, y - 7), (x + 7, y), (x, y + 7), (x - 7, y)],
    };
    let outline = corners.iter().copied().chain(corners.first().copied());
    root.draw(&Polygon::new(corners.clone(), inside))?;
    root.draw(&PathElement::new(outline.collect::<Vec<_>>(), edge))
}

fn on_text(height: u32, draw: impl for<'a> FnOnce(&Canvas<'a>) -> Drawn<'a>) -> String {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        draw(&root).expect("drawing into a text cannot fail");
        root.present().expect("drawing into a text cannot fail");
    }
    text
}

/// Gives the drawing its name and description, and a white ground for readers with a dark screen.
fn finish(id: &'static str, title: &str, description: String, svg: &str) -> Plot {
    let (_, inside) = svg.split_once("<svg ").unwrap_or_default();
    let (attributes, inside) = inside.split_once('>').unwrap_or_default();
    let head = maud::html! {
        title id={ (id) "-title" } { (title) }
        desc id={ (id) "-desc" } { (description) }
    };
    let svg = format!(
        "<svg role=\"img\" aria-labelledby=\"{id}-title {id}-desc\" {attributes}>\n{}\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#FFFFFF\"/>{inside}",
        head.into_string()
    );
    Plot { id, svg }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AXIS: Axis = Axis {
        label: "time; less is better",
        logarithmic: false,
        mark: Some(1.0),
        text: |value| format!("{value:.0}"),
    };

    fn bar(name: &str, value: f64) -> Bar {
        Bar {
            name: name.into(),
            value,
            text: format!("{value}"),
        }
    }

    fn parsed(plot: &Plot) -> Vec<String> {
        let tree = roxmltree::Document::parse(&plot.svg).unwrap();
        let texts = tree
            .descendants()
            .filter(|node| node.has_tag_name("text") || node.tag_name().name() == "text");
        texts
            .filter_map(|node| Some(node.text()?.trim().to_owned()))
            .collect()
    }

    #[test]
    fn bars_have_their_names_and_values_as_text() {
        for logarithmic in [false, true] {
            let group = Group {
                label: "a & b".into(),
                bars: vec![bar("upcall", 3.0), bar("nptl", 4000.0)],
            };
            let plot = bars(
                "x",
                "A <title>",
                Axis {
                    logarithmic,
                    ..AXIS
                },
                &[group],
            )
            .unwrap();
            let texts = parsed(&plot);
            for text in ["a & b", "upcall", "nptl", "3", "4000"] {
                assert!(texts.iter().any(|one| one == text), "{text}: {texts:?}");
            }
            assert!(plot.svg.contains("A &lt;title&gt;"), "{}", plot.svg);
            assert!(plot.svg.contains("upcall 3, nptl 4000"));
        }
    }

    #[test]
    fn what_cannot_be_drawn_is_left_out() {
        let group = |values: &[f64]| Group {
            label: "x".into(),
            bars: values.iter().map(|value| bar("go", *value)).collect(),
        };
        let bad = [f64::NAN, f64::INFINITY, 1e300];
        assert!(bars("x", "x", AXIS, &[group(&bad)]).is_none());
        assert!(bars("x", "x", AXIS, &[]).is_none());
        assert!(bars("x", "x", AXIS, &[group(&[0.0, 1e300])]).is_some());
        let line = |y| Line {
            name: "go".into(),
            points: vec![(1.0, y)],
        };
        assert!(lines("x", "x", AXIS, "n", &[line(f64::NAN)]).is_none());
        let plot = lines("x", "x", AXIS, "n", &[line(0.0), line(7.0)]).unwrap();
        assert!(plot.svg.contains("7 at 1"), "{}", plot.svg);
        roxmltree::Document::parse(&plot.svg).unwrap();
    }
}
