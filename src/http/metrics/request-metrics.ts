/** Counts responses by route. */
import { createHistogram, type Histogram, type MetricFamily } from "./prometheus.ts";

/** Upper bounds of the buckets: from a read in memory to a disk that hangs. */
export const DURATIONS_S = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5,
];

/** A status, or that of a response that leads to another server, which is no failure: 503. */
type Outcome = number | "not_primary";

interface Series {
  readonly method: string;
  readonly route: string;
  readonly byStatus: Map<Outcome, number>;
  readonly durationsS: Histogram;
}

/**
 * The statuses of failures. Their counters start at 0: Prometheus does not see the first increase of a counter that
 * appears with its first value.
 */
const FAILURES = [500, 503];

export function createRequestMetrics() {
  /** By method and route. */
  const all = new Map<string, Series>();

  function addSeries(method: string, route: string): Series {
    const durationsS = createHistogram(DURATIONS_S);
    const byStatus = new Map<Outcome, number>(FAILURES.map((status) => [status, 0]));
    const series = { method, route, byStatus, durationsS };
    all.set(`${method} ${route}`, series);
    return series;
  }

  return {
    /** Exports the counters of a route before its first request. */
    addRoute: addSeries,
    /** @param route the pattern, not the path, so that the number of labels is bounded */
    observe(method: string, route: string, status: Outcome, durationMs: number): void {
      const series = all.get(`${method} ${route}`) ?? addSeries(method, route);
      series.byStatus.set(status, (series.byStatus.get(status) ?? 0) + 1);
      series.durationsS.observe(durationMs / 1000);
    },
    families(): MetricFamily[] {
      const series = [...all.values()];
      return [
        {
          name: "http_requests_total",
          help: "Responses. With status 499, the client had disconnected; the reason not_primary is no failure.",
          type: "counter",
          samples: series.flatMap(({ method, route, byStatus }) =>
            [...byStatus].map(([status, value]) => {
              const outcome =
                typeof status === "number" ? { status } : { status: 503, reason: status };
              return { labels: { method, route, ...outcome }, value };
            }),
          ),
        },
        {
          name: "http_request_duration_seconds",
          help: "Time to handle a request, in seconds.",
          type: "histogram",
          samples: series.flatMap(({ method, route, durationsS }) =>
            durationsS.samples({ method, route }),
          ),
        },
      ];
    },
  };
}
