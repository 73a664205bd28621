import { expect, test } from "bun:test";
import { renderMetrics } from "../../src/http/metrics/prometheus.ts";

test("renderMetrics writes the samples of each family under its help and its type", () => {
  const text = renderMetrics([
    { name: "a_total", help: "Many.", type: "counter", samples: [{ value: 1.5 }] },
    {
      name: "b",
      help: "Two series.",
      type: "gauge",
      samples: [
        { labels: { x: "1", y: 2 }, value: 0 },
        { labels: { x: "" }, value: 1e21 },
      ],
    },
    { name: "c_total", help: "None yet.", type: "counter", samples: [] },
  ]);
  expect(text).toBe(`# HELP a_total Many.
# TYPE a_total counter
a_total 1.5

# HELP b Two series.
# TYPE b gauge
b{x="1",y="2"} 0
b{x=""} 1e+21

# HELP c_total None yet.
# TYPE c_total counter
`);
});
