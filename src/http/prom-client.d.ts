// The modules of prom-client that `metrics.ts` uses. Its main module also imports OpenTelemetry, metrics of Node.js
// and summaries, which would make the binary 0.7 MB larger.
declare module "prom-client/lib/counter.js" {
  export { Counter as default } from "prom-client";
}
declare module "prom-client/lib/gauge.js" {
  export { Gauge as default } from "prom-client";
}
declare module "prom-client/lib/histogram.js" {
  export { Histogram as default } from "prom-client";
}
declare module "prom-client/lib/registry.js" {
  export { Registry as default } from "prom-client";
}
