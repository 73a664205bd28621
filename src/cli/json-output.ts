/** The output of a command with `--json`. docs/command-line.md has the shapes, which are typed where they are made. */
import type { System } from "./files/system.ts";

export interface JsonOption {
  /** Whether the result is printed as JSON. */
  readonly json?: boolean;
}

/** Prints the only line on stdout. */
export function printJson({ stdout }: Pick<System, "stdout">, result: object): void {
  stdout(`${JSON.stringify(result)}\n`);
}
