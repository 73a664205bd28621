import { expect, test } from "bun:test";
import { fileSystemOf, isMountPoint, parseMounts } from "../../src/base/mounts.ts";

const mounts =
  parseMounts(String.raw`22 1 0:20 / / rw,relatime shared:1 - overlay overlay rw,lowerdir=/a
23 22 0:21 / /data rw,nosuid master:1 propagate_from:2 - nfs4 server:/export rw,vers=4.2
24 23 8:1 /u.db /data/my\040\134files/u.db rw - ext4 /dev/sda1 rw
25 22 0:22 / /database rw - tmpfs tmpfs rw
26 22 0:23 / /database rw - fuse.sshfs host:/a\040b rw
`);

test("mounts are read with their escaped characters and optional fields, and the last one above a path counts", () => {
  expect(isMountPoint("/data", mounts)).toBe(true);
  expect(isMountPoint(String.raw`/data/my \files/u.db`, mounts)).toBe(true);
  expect(isMountPoint("/data/u.db", mounts)).toBe(false);
  for (const [path, type] of [
    ["/etc/a.db", "overlay"],
    ["/data/a.db", "nfs4"],
    ["/data2/a.db", "overlay"],
    [String.raw`/data/my \files/u.db`, "ext4"],
    ["/database/a.db", "fuse.sshfs"],
  ] as const) {
    expect(fileSystemOf(path, mounts), path).toBe(type);
  }
  expect(fileSystemOf("/a", [])).toBeNull();
});
