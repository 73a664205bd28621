/** Messages between the thread of a server and that of its archive. */

import type { ArchiveLog, ArchiveSettings, ArchiveState } from "../../archive.ts";
import type { ErrorCode } from "../../error.ts";
import type { FileDescriptors } from "../file-watch.ts";

export type ArchiveRequest =
  | {
      readonly type: "open";
      readonly path: string;
      readonly settings: ArchiveSettings;
    }
  | {
      readonly type: "start";
      /** Path of the file, not of a symbolic link to it: its other files are next to it. */
      readonly path: string;
      readonly files: FileDescriptors;
    }
  | { readonly type: "checkpoint" }
  | { readonly type: "close" }
  /** These have no response. */
  | { readonly type: "committed"; readonly commit: number }
  | { readonly type: "stop" };

export type ArchiveResponse =
  | { readonly type: "done" }
  | { readonly type: "failed"; readonly code: ErrorCode | null; readonly message: string }
  | { readonly type: "confirmed"; readonly commit: number }
  /** Another server has the archive. */
  | { readonly type: "lost" }
  | { readonly type: "state"; readonly state: ArchiveState }
  | { readonly type: "log"; readonly line: Parameters<ArchiveLog> };
