/** Every generator. To add one, add a row. */
import { generateConfiguration } from "./configuration.ts";
import type { Generator } from "./generated.ts";
import { generateProfiles } from "./profiles.ts";
import { SCHEMA_FOLDER, generateSchemas } from "./schemas.ts";

export const GENERATORS: Readonly<Record<string, Generator>> = {
  schemas: { make: generateSchemas, folder: SCHEMA_FOLDER },
  profiles: { make: generateProfiles },
  configuration: { make: generateConfiguration },
};
