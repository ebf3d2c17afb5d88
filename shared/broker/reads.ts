/** Reads of what a stream stores, in one place: leader reads that may decide, pages that may not. */
export { type StoredEntry, leaderGet, leaderLast, leaderNext } from "./leader.ts";
export { type Page, type PageRequest, directPage } from "./pages.ts";
export { type BucketRow, type RowPage, type RowPageRequest, allRows, rowPage } from "./rows.ts";
export { isMarker } from "./stored-headers.ts";
