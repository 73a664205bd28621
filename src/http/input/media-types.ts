export const JSON_TYPE = "application/json";
/** JSON Merge Patch (RFC 7396). */
export const PATCH_TYPE = "application/merge-patch+json";
/** `Accept-Patch` of a 415 (RFC 5789 §2.2). */
export const PATCH_TYPES = `${JSON_TYPE}, ${PATCH_TYPE}`;
export const TEXT_TYPE = "text/plain; charset=utf-8";
