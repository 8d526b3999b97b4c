//! Numbers by their value: exact decimals, never floats, so that 1.0 is 1 and 0.1 is not
//! 0.10000000000000001.

/// More digits than this of an exponent are refused: the sum with a length must fit 64 bits.
const EXPONENT_DIGITS_MAX: usize = 18;

/// The one spelling of the value of a JSON number: its digits without zeros at either end, and the
/// power of ten that they are multiplied with, as in `-125e-2`; `0` for every zero. Nothing if its
/// exponent has too many digits.
pub(super) fn by_value(number: &str) -> Option<String> {
    let (sign, number) = match number.strip_prefix('-') {
        Some(number) => ("-", number),
        None => ("", number),
    };
    let (decimal, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = decimal.split_once('.').unwrap_or((decimal, ""));
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let bare = digits.trim_end_matches('0');
    if bare.is_empty() {
        return Some("0".to_owned());
    }
    let dropped = i64::try_from(digits.len() - bare.len()).ok()?;
    let shift = dropped - i64::try_from(fraction.len()).ok()?;
    let power = read(exponent)? + shift;
    Some(if power == 0 {
        format!("{sign}{bare}")
    } else {
        format!("{sign}{bare}e{power}")
    })
}

fn read(exponent: &str) -> Option<i64> {
    let (sign, digits) = match exponent.as_bytes().first()? {
        b'-' => (-1, &exponent[1..]),
        b'+' => (1, &exponent[1..]),
        _ => (1, exponent),
    };
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    if digits.len() > EXPONENT_DIGITS_MAX {
        return None;
    }
    digits.parse::<i64>().ok().map(|power| sign * power)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::by_value;

    #[test]
    fn equal_values_have_one_spelling() {
        for (spellings, one) in [
            (
                &[
                    "1", "1.0", "1.000", "10e-1", "0.1e1", "1e0", "1E-0", "100e-2",
                ][..],
                "1",
            ),
            (
                &[
                    "0",
                    "-0",
                    "0.0",
                    "0e5",
                    "-0.00e-7",
                    "0e99999999999999999999",
                ],
                "0",
            ),
            (&["100", "1e2", "1E+2", "100.0", "0.1e3", "1e02"], "1e2"),
            (&["-12.50", "-12.5", "-1.25e1", "-125e-1"], "-125e-1"),
            (&["9007199254740993"], "9007199254740993"),
            (&["9007199254740992"], "9007199254740992"),
            (&["0.1"], "1e-1"),
            (&["0.10000000000000001"], "10000000000000001e-17"),
            (&["1e999999999999999999"], "1e999999999999999999"),
        ] {
            for spelling in spellings {
                assert_eq!(by_value(spelling).as_deref(), Some(one), "{spelling}");
            }
        }
        assert_eq!(by_value("1e1000000000000000000"), None);
        assert_eq!(by_value("1e-99999999999999999999"), None);
    }

    proptest! {
        /// `digits * 10^power`, written with its point moved about and zeros added, stays one value.
        #[test]
        fn where_the_point_is_and_how_many_zeros_there_are_is_no_difference(
            digits in "[1-9][0-9]{0,30}",
            power in -1000_i64..1000,
            point in 1_usize..30,
            zeros in 0_usize..5,
        ) {
            let plain = format!("{digits}e{power}");
            let at = point.min(digits.len());
            let (whole, fraction) = digits.split_at(at);
            let moved = power + i64::try_from(fraction.len()).unwrap();
            let zeros = "0".repeat(zeros);
            let dotted = format!("{whole}.{fraction}0{zeros}E{moved:+}");

            prop_assert_eq!(by_value(&plain), by_value(&dotted), "{} {}", plain, dotted);
            let next = format!("{digits}1e{}", power - 1);
            prop_assert_ne!(by_value(&plain), by_value(&next));
        }
    }
}
