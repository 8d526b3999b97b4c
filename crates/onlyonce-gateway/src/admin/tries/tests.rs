use super::*;

const TOKEN: Digest = [0; 32];

fn guess(number: u8) -> Digest {
    [number.max(1); 32]
}

fn address(text: &str) -> Option<IpAddr> {
    text.parse().ok()
}

/// How many different guesses from an address are looked at.
fn looked_at(tries: &Tries, from: &str) -> usize {
    let judged = (1..=50).map(|it| tries.typed(&guess(it), &TOKEN, address(from)));
    judged.filter(|it| *it == Tried::Wrong).count()
}

#[tokio::test(start_paused = true)]
async fn tries_are_bounded_for_each_address_and_for_a_whole_network_of_ipv6() {
    let tries = Tries::default();

    assert_eq!(looked_at(&tries, "192.0.2.1"), 10);
    assert_eq!(looked_at(&tries, "192.0.2.2"), 10, "another address");
    assert_eq!(looked_at(&tries, "2001:db8::1"), 10);
    assert_eq!(looked_at(&tries, "2001:db8::2"), 0, "the same network");
    assert_eq!(looked_at(&tries, "2001:db8:0:1::1"), 10, "another network");
    assert_eq!(looked_at(&tries, "unknown"), 10);
}

#[tokio::test(start_paused = true)]
async fn after_too_many_the_right_one_is_refused_too_until_the_minute_is_over() {
    let tries = Tries::default();
    let here = address("192.0.2.1");
    looked_at(&tries, "192.0.2.1");

    assert_eq!(tries.typed(&TOKEN, &TOKEN, here), Tried::TooMany);
    assert_eq!(tries.presented(&TOKEN, &TOKEN, here), Tried::TooMany);
    tokio::time::advance(WINDOW - Duration::from_secs(1)).await;
    assert_eq!(tries.presented(&TOKEN, &TOKEN, here), Tried::TooMany);
    tokio::time::advance(Duration::from_secs(1)).await;

    assert_eq!(tries.presented(&TOKEN, &TOKEN, here), Tried::Right);
    assert_eq!(looked_at(&tries, "192.0.2.1"), 10);
}

#[tokio::test(start_paused = true)]
async fn the_right_token_is_no_try_and_a_program_with_an_outdated_one_locks_nobody_out() {
    let tries = Tries::default();
    let here = address("192.0.2.1");

    for _ in 0..1000 {
        assert_eq!(tries.presented(&TOKEN, &TOKEN, here), Tried::Right);
        assert_eq!(tries.presented(&guess(7), &TOKEN, here), Tried::Wrong);
    }

    assert_eq!(looked_at(&tries, "192.0.2.1"), 9);
}

#[tokio::test(start_paused = true)]
async fn addresses_are_bounded_and_those_beyond_share_one_count() {
    let tries = Tries::default();
    let from = |number: usize| {
        let number = u32::try_from(number).unwrap();
        Some(IpAddr::V4(Ipv4Addr::from(number)))
    };
    for number in 1..=ADDRESSES_MAX {
        tries.typed(&guess(1), &TOKEN, from(number));
    }

    for number in 1..=10 {
        let another = from(ADDRESSES_MAX + usize::from(number));
        assert_eq!(tries.typed(&guess(number), &TOKEN, another), Tried::Wrong);
    }

    let another = from(ADDRESSES_MAX + 11);
    assert_eq!(tries.typed(&TOKEN, &TOKEN, another), Tried::TooMany);
    assert_eq!(tries.typed(&TOKEN, &TOKEN, from(1)), Tried::Right);
    assert!(tries.by_address.lock().unwrap().len() <= ADDRESSES_MAX + 1);
    tokio::time::advance(WINDOW).await;
    assert_eq!(tries.typed(&TOKEN, &TOKEN, another), Tried::Right);
    assert_eq!(tries.by_address.lock().unwrap().len(), 0);
}
