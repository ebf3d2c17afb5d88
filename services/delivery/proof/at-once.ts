/** Runs a bounded number of questions at a time: the broker answers them together, and nobody else waits long. */
export async function atOnce<In, Out>(
  items: readonly In[],
  limit: number,
  ask: (item: In) => Promise<Out>,
): Promise<Out[]> {
  const answers: Out[] = [];
  let next = 0;
  const work = async (): Promise<void> => {
    for (let at = next++; at < items.length; at = next++) answers[at] = await ask(items[at] as In);
  };
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, work));
  return answers;
}
