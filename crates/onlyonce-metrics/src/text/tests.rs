#[test]
fn counters_and_information_are_named_with_their_endings() {
    let page = "# HELP a Things, counted.\n# TYPE a counter\na_total{of=\"b\"} 1\n\
                # HELP b What runs.\n# TYPE b info\nb_info{version=\"1\"} 1\n\
                # HELP c_ms Time.\n# TYPE c_ms histogram\n# UNIT c_ms ms\nc_ms_sum 1.0\n# EOF\n";

    let text = super::of(page);

    let expected = "# HELP a_total Things, counted.\n# TYPE a_total counter\na_total{of=\"b\"} 1\n\
                    # HELP b_info What runs.\n# TYPE b_info gauge\nb_info{version=\"1\"} 1\n\
                    # HELP c_ms Time.\n# TYPE c_ms histogram\nc_ms_sum 1.0\n";
    assert_eq!(text, expected);
}
