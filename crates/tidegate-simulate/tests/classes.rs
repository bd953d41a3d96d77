//! Classes of requests: lanes of their own under one limit.

use std::time::Duration;

use tidegate::Floor;
use tidegate_simulate::{Outcome, Scenario, ScenarioError, every_algorithm};

const TRAFFIC: &str = "poisson 30/s floor 50% + bursts 4 every 1s from 500ms";

#[test]
fn each_class_is_a_lane_and_the_floor_is_there_for_the_others() {
    let limits = every_algorithm("10/s".parse().expect("a limit")).expect("limits");
    let scenario = Scenario::new(TRAFFIC.parse().expect("traffic")).limits(limits).lasting(Duration::from_secs(60));
    let report = scenario.run().expect("a scenario");
    assert_eq!(report.outcomes.len(), 10);
    for lanes in report.outcomes.chunks(2) {
        let [low, bursts] = lanes else { panic!("two classes") };
        let floors = [low, bursts].map(|lane| lane.class.as_ref().map(|class| class.floor));
        assert_eq!(floors, [Some(Floor::Percent(50)), Some(Floor::NONE)]);
        assert_eq!(bursts.refused().requests, 0, "{}: half is kept for the bursts", bursts.name());
        assert!(low.refused().requests > low.offered.requests / 2, "{}", low.name());
        assert_eq!(low.offered.requests + bursts.offered.requests, report.offered.passed.requests);
    }
    let [table, chart, picture] = [report.table().to_string(), report.chart().to_string(), report.picture().to_svg()]
        .map(|shown| {
            let lanes = ["token bucket 10/s, floor 50%", "token bucket 10/s, floor 0"];
            lanes.map(|lane| shown.matches(lane).count() > 0)
        });
    assert_eq!([table, chart, picture], [[true; 2]; 3]);
}

#[test]
fn traffic_of_one_class_has_one_lane_for_each_limit() {
    let limit = "10/s".parse().expect("a limit");
    for (words, admitted) in [("30/s floor 50%", 14), ("30/s", 19)] {
        let scenario = Scenario::new(words.parse().expect("traffic")).limits([limit]).lasting(Duration::from_secs(1));
        let report = scenario.run().expect("a scenario");
        let [Outcome { class: None, flow, .. }] = &*report.outcomes else { panic!("one lane") };
        assert_eq!(flow.passed.requests, admitted, "{words}");
    }
    let never = Scenario::new("1/s cost 6 floor 50%".parse().expect("traffic")).limits([limit]).run();
    assert!(matches!(never, Err(ScenarioError::Unsatisfiable { cost: 6, .. })), "{never:?}");
}
