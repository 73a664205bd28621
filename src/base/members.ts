/** Of an object or an array in JSON that others have written: any value is possible. */
export type Members = Readonly<Record<string, unknown>>;

export const isMembers = (value: unknown): value is Members =>
  typeof value === "object" && value !== null;

export const membersIn = (members: Members, name: string): Members =>
  isMembers(members[name]) ? members[name] : {};

export const listIn = (members: Members, name: string): readonly Members[] =>
  Object.values(membersIn(members, name)).filter(isMembers);
