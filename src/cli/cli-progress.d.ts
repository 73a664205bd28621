// The package has no types, and `@types/cli-progress` depends on those of Node.js.
declare module "cli-progress" {
  import type { Terminal } from "./context.ts";

  export interface Bar {
    update(value: number): void;
  }

  export class MultiBar {
    constructor(options: {
      readonly stream: Terminal;
      readonly format: string;
      readonly barsize: number;
      readonly clearOnComplete: boolean;
      readonly gracefulExit: boolean;
      readonly linewrap: boolean;
    });
    create(total: number, value: number): Bar;
    /** Written above the bar with its next update. */
    log(text: string): void;
    update(): void;
    stop(): void;
  }
}
