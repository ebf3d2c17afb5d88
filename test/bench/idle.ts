import type { Report } from "./line.ts";
export async function idle(_report: Report): Promise<void> {}
