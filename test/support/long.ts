/** Whether tests that repeat something at random or in turn do it more often, as on CI. */
export const isLong: boolean = Bun.env["TEST_LONG"] === "true";
