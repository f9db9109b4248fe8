import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestProject } from 'vitest/node'

/** What the tests need of the usual set-up (test/postgres.ts) when they run on SQLite alone. */
export default function setUp(project: TestProject): () => void {
  const folder = mkdtempSync(join(tmpdir(), 'svc-mutants-'))
  project.provide('temporaryFolder', folder)
  return () => rmSync(folder, { recursive: true, force: true })
}
