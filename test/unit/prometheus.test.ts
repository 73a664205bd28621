import { expect, test } from "bun:test";
import { createHistogram, renderMetrics } from "../../src/http/prometheus.ts";

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

test("renderMetrics escapes backslashes, line breaks, and quotes in the values of labels", () => {
  const text = renderMetrics([
    {
      name: "a",
      help: '\\n and\nmore, "as is"',
      type: "gauge",
      samples: [{ labels: { path: '\\n"\n"' }, value: 1 }],
    },
  ]);
  expect(text.split("\n")).toEqual([
    String.raw`# HELP a \\n and\nmore, "as is"`,
    "# TYPE a gauge",
    String.raw`a{path="\\n\"\n\""} 1`,
    "",
  ]);
});

test("createHistogram counts a value in its bucket and in all larger ones", () => {
  const sizes = createHistogram([1, 2.5]);
  for (const size of [1, 2, 2.5, 3]) sizes.observe(size);
  const text = renderMetrics([
    { name: "size", help: "Sizes.", type: "histogram", samples: sizes.samples({ of: "a" }) },
    { name: "none", help: "None.", type: "histogram", samples: createHistogram([1]).samples() },
  ]);
  expect(text.split("\n").filter((line) => /^\w/.test(line))).toEqual([
    'size_bucket{le="1",of="a"} 1',
    'size_bucket{le="2.5",of="a"} 3',
    'size_bucket{le="+Inf",of="a"} 4',
    'size_sum{of="a"} 8.5',
    'size_count{of="a"} 4',
    'none_bucket{le="1"} 0',
    'none_bucket{le="+Inf"} 0',
    "none_sum 0",
    "none_count 0",
  ]);
});
