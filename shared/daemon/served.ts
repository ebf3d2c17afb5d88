/** What a daemon counts of the requests it answers: the same two metrics, whatever it serves. */
import type { Metrics } from "./metrics.ts";

/** An answer that went out. */
export type Served = { readonly command: string; readonly result: string; readonly milliseconds: number };

export function countServed(metrics: Metrics): (space: string, served: Served) => void {
  const requests = metrics.counter({
    name: `${metrics.prefix}requests_total`,
    help: "Requests answered, by command and result.",
    labels: ["space", "command", "result"],
  });
  const seconds = metrics.histogram({
    name: `${metrics.prefix}request_duration_seconds`,
    help: "From a request's arrival to its answer.",
    labels: ["space", "command"],
  });
  return (space, { command, result, milliseconds }) => {
    requests.inc({ space, command, result });
    seconds.observe({ space, command }, milliseconds / 1000);
  };
}
