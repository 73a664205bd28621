/** Which build of the program this is. */
import { version } from "../../package.json" with { type: "json" };

/** The commit, from scripts/build.sh. It is not defined if the program runs from source. */
declare const BUILD_COMMIT: string | undefined;

export interface Build {
  /** E.g. `0.1.0`. */
  readonly version: string;
  /** The beginning of its hash, with `-dirty` after uncommitted changes; `source` if the program is not compiled. */
  readonly commit: string;
}

export const build: Build = {
  version,
  commit: typeof BUILD_COMMIT === "undefined" ? "source" : BUILD_COMMIT,
};
