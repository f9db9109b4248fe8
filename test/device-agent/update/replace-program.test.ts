import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { displacedFile, replaceProgram, stagedFile } from '../../../src/device-agent/update/files.ts'

let folder: string
let file: string
let staged: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-replace-'))
  file = join(folder, 'svc-agent.exe')
  staged = stagedFile(file)
  writeFileSync(file, 'old')
  writeFileSync(staged, 'new')
})
afterEach(() => rmSync(folder, { recursive: true }))

const failure = (code: string) => Object.assign(new Error(code), { code })

/** As Windows does it while these programs run. */
function renamingAsWindows(...running: string[]) {
  return (from: string, to: string): void => {
    if (running.includes(to) && existsSync(to)) throw failure('EPERM')
    renameSync(from, to)
  }
}

describe('a program that is replaced', () => {
  it('is replaced in one step where that is possible', () => {
    const steps: string[][] = []
    replaceProgram(staged, file, (from, to) => {
      steps.push([String(from), String(to)])
      renameSync(from, to)
    })
    expect(steps).toEqual([[staged, file]])
    expect(readFileSync(file, 'utf8')).toBe('new')
  })

  it('makes room where it runs, with the name that the task looks for', () => {
    writeFileSync(displacedFile(file), 'older')
    replaceProgram(staged, file, renamingAsWindows(file) as typeof renameSync)
    expect(readFileSync(file, 'utf8')).toBe('new')
    expect(readFileSync(join(folder, 'old-svc-agent.exe'), 'utf8')).toBe('old')
    expect(readdirSync(folder)).toHaveLength(2)
  })

  it('comes back when the other one cannot take its place', () => {
    const rename = (from: string, to: string): void => {
      if (from === staged) throw failure('EBUSY')
      renameSync(from, to)
    }
    expect(() => replaceProgram(staged, file, rename as typeof renameSync)).toThrow('EBUSY')
    expect(readFileSync(file, 'utf8')).toBe('old')
    expect(readFileSync(staged, 'utf8')).toBe('new')
  })

  it('stays for any other failure', () => {
    const rename = (): void => {
      throw failure('ENOSPC')
    }
    expect(() => replaceProgram(staged, file, rename)).toThrow('ENOSPC')
    expect(readFileSync(file, 'utf8')).toBe('old')
  })
})
