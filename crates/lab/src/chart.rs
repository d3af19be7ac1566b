//! Charts as plain SVG: bars in groups, and lines.

use std::fmt::Write;

const COLOURS: [&str; 6] = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2"];
const INK: &str = "#222";
const FAINT: &str = "#ddd";
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 380.0;
/// The field of the plot.
const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 20.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = HEIGHT - 88.0;

/// Common parts of both kinds of charts.
#[derive(Clone, Debug)]
pub struct Axes<'a> {
    /// Above all.
    pub title: &'a str,
    /// Below the horizontal axis.
    pub x: &'a str,
    /// Beside the vertical axis.
    pub y: &'a str,
    /// A horizontal line for comparison, and its name.
    pub level: Option<(f64, &'a str)>,
}

/// A series of numbers with a name; some may be missing.
pub type Series<'a> = (&'a str, Vec<Option<f64>>);

/// Bars side by side in groups; one series has one colour, one number for each group.
pub fn bar_chart(axes: &Axes<'_>, groups: &[&str], series: &[Series<'_>]) -> String {
    let scale = Vertical::over(axes, series);
    let mut svg = scale.open(axes, series);
    let group = (RIGHT - LEFT) / groups.len().max(1) as f64;
    let bar = group * 0.8 / series.len().max(1) as f64;
    for (at, name) in groups.iter().enumerate() {
        let start = LEFT + group * at as f64;
        text(&mut svg, start + group / 2.0, BOTTOM + 18.0, "middle", 12, name);
        for (number, (_, values)) in series.iter().enumerate() {
            let Some(value) = values.get(at).copied().flatten() else { continue };
            let (x, y) = (start + group * 0.1 + bar * number as f64, scale.y(value));
            let colour = COLOURS[number % COLOURS.len()];
            let (wide, high) = (bar * 0.92, BOTTOM - y);
            let _ = write!(
                svg,
                r#"<rect x="{x:.1}" y="{y:.1}" width="{wide:.1}" height="{high:.1}" fill="{colour}"/>"#
            );
            text(&mut svg, x + wide / 2.0, y - 4.0, "middle", 10, &short(value));
        }
    }
    close(svg)
}

/// A line for each series over the same places.
pub fn line_chart(axes: &Axes<'_>, places: &[f64], series: &[Series<'_>]) -> String {
    let names: Vec<String> = places.iter().map(f64::to_string).collect();
    lines(axes, &places.iter().copied().zip(names.iter().map(String::as_str)).collect::<Vec<_>>(), series)
}

/// A line for each series over places with names, one as far from the next as all others.
pub fn line_chart_over(axes: &Axes<'_>, names: &[&str], series: &[Series<'_>]) -> String {
    lines(axes, &(0..).map(f64::from).zip(names.iter().copied()).collect::<Vec<_>>(), series)
}

fn lines(axes: &Axes<'_>, places: &[(f64, &str)], series: &[Series<'_>]) -> String {
    let scale = Vertical::over(axes, series);
    let mut svg = scale.open(axes, series);
    let end = |place: Option<&(f64, &str)>, otherwise| place.map_or(otherwise, |(at, _)| *at);
    let (low, high) = (end(places.first(), 0.0), end(places.last(), 1.0));
    let x = |place: f64| {
        LEFT + 30.0 + (place - low) / (high - low).max(f64::MIN_POSITIVE) * (RIGHT - LEFT - 60.0)
    };
    for (place, name) in places {
        text(&mut svg, x(*place), BOTTOM + 18.0, "middle", 12, name);
    }
    for (number, (_, values)) in series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let known =
            places.iter().zip(values).filter_map(|((place, _), value)| Some((x(*place), scale.y((*value)?))));
        let known: Vec<(f64, f64)> = known.collect();
        let path: Vec<String> = known.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = write!(
            svg,
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2"/>"#,
            path.join(" ")
        );
        for (x, y) in known {
            let _ = write!(svg, r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.5" fill="{colour}"/>"#);
        }
    }
    close(svg)
}

/// The vertical axis, from 0 to a round number.
struct Vertical {
    step: f64,
    top: f64,
}

impl Vertical {
    fn over(axes: &Axes<'_>, series: &[Series<'_>]) -> Vertical {
        let values = series.iter().flat_map(|(_, values)| values.iter().copied().flatten());
        let most = values.chain(axes.level.map(|(level, _)| level)).fold(0.0, f64::max).max(1e-9);
        let magnitude = 10f64.powf((most / 5.0).log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * magnitude);
        let step = steps.into_iter().find(|step| most / step <= 6.0).unwrap_or(10.0 * magnitude);
        Vertical { step, top: (most * 1.04 / step).ceil() * step }
    }

    fn y(&self, value: f64) -> f64 {
        BOTTOM - value / self.top * (BOTTOM - TOP)
    }

    /// The picture up to where the data begins: axes, grid, names, legend.
    fn open(&self, axes: &Axes<'_>, series: &[Series<'_>]) -> String {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\">\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
        );
        text(&mut svg, LEFT, 24.0, "start", 15, axes.title);
        let count = (self.top / self.step).round() as u32;
        for value in (0..=count).map(|n| f64::from(n) * self.step) {
            rule(&mut svg, self.y(value), if value == 0.0 { INK } else { FAINT }, "");
            text(&mut svg, LEFT - 8.0, self.y(value) + 4.0, "end", 11, &short(value));
        }
        if let Some((level, name)) = axes.level {
            rule(&mut svg, self.y(level), INK, " stroke-dasharray=\"5 4\"");
            text(&mut svg, RIGHT, self.y(level) - 5.0, "end", 11, name);
        }
        text(&mut svg, (LEFT + RIGHT) / 2.0, BOTTOM + 38.0, "middle", 12, axes.x);
        let middle = (TOP + BOTTOM) / 2.0;
        let _ = write!(
            svg,
            r#"<text x="18" y="{middle}" transform="rotate(-90 18 {middle})" text-anchor="middle" font-size="12" fill="{INK}">{}</text>"#,
            escape(axes.y)
        );
        legend(&mut svg, series);
        svg
    }
}

fn legend(svg: &mut String, series: &[Series<'_>]) {
    const COLUMNS: usize = 3;
    for (number, (name, _)) in series.iter().enumerate() {
        let x = LEFT + (number % COLUMNS) as f64 * 220.0;
        let y = BOTTOM + 60.0 + (number / COLUMNS) as f64 * 18.0;
        let colour = COLOURS[number % COLOURS.len()];
        let _ = write!(svg, r#"<rect x="{x}" y="{}" width="12" height="12" fill="{colour}"/>"#, y - 10.0);
        text(svg, x + 17.0, y, "start", 12, name);
    }
}

fn rule(svg: &mut String, y: f64, colour: &str, more: &str) {
    let _ =
        write!(svg, r#"<line x1="{LEFT}" y1="{y:.1}" x2="{RIGHT}" y2="{y:.1}" stroke="{colour}"{more}/>"#);
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, size: u32, words: &str) {
    let words = escape(words);
    let _ = write!(
        svg,
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" font-size="{size}" fill="{INK}">{words}</text>"#
    );
}

fn close(mut svg: String) -> String {
    svg.push_str("</svg>\n");
    svg
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A number as short text.
fn short(value: f64) -> String {
    let text = if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AXES: Axes<'_> = Axes { title: "a < b", x: "nodes", y: "MB/s", level: Some((12.5, "the wire")) };

    #[test]
    fn every_number_is_drawn_and_gaps_are_not() {
        let series = [("one", vec![Some(1.0), None]), ("two", vec![Some(2.0), Some(12.0)])];
        let svg = bar_chart(&AXES, &["left", "right"], &series);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains("a &lt; b"));
        // The ground, two of the legend, three bars.
        assert_eq!(svg.matches("<rect").count(), 6);
        let svg = line_chart(&AXES, &[2.0, 16.0], &series);
        assert_eq!((svg.matches("<polyline").count(), svg.matches("<circle").count()), (2, 3));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        let named = line_chart_over(&AXES, &["4 KiB", "8 KiB"], &series);
        assert!(named.contains(">4 KiB<") && named.contains(">8 KiB<"));
        assert_eq!(named.replace("4 KiB", "2").replace("8 KiB", "16"), svg);
    }

    #[test]
    fn axes_end_at_round_numbers_above_all_values() {
        for (most, top) in [(11.9, 14.0), (57.0, 60.0), (0.07, 0.08), (1200.0, 1400.0)] {
            let series = [("one", vec![Some(most)])];
            let axes = Axes { level: None, ..AXES };
            let scale = Vertical::over(&axes, &series);
            assert!((scale.top - top).abs() < 1e-9, "{most}: {}", scale.top);
        }
        assert_eq!([0.0, 2.0, 11.94, 250.4].map(short), ["0", "2", "11.9", "250"]);
    }
}
