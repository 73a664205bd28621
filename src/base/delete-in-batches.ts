/**
 * Deletes in small transactions, so that other writes run in between.
 * @param deleteBatch one transaction; returns whether nothing is left to delete
 * @param signal ends it after the current transaction
 */
export async function deleteInBatches(
  deleteBatch: () => Promise<boolean>,
  signal?: AbortSignal,
): Promise<void> {
  while (!signal?.aborted && !(await deleteBatch()));
}
