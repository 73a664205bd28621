/** @returns UTC without the colons that some file systems reject. Names of files that differ in it alone sort by time. */
export function timeInName(time: Date): string {
  return time.toISOString().replaceAll(":", "-");
}

export function isTimeInName(text: string): boolean {
  return /^\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}Z$/.test(text);
}
