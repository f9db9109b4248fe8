import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { Home } from '../cli/run.ts'
import { temporaryFolder } from '../databases.ts'

const commands: [args: string[], code: number][] = [
  [['status'], 0],
  [['unlock'], 0],
  [['vacuum'], 1],
  [['backup', '--out', 'none.svcbackup'], 1],
  [['rehearse'], 1],
]

it.each(commands)(
  'svc db %j makes no database where there is none',
  async ([command = '', ...flags], code) => {
    const home = new Home()
    onTestFinished(() => home.remove())
    const dataDir = join(await temporaryFolder(), 'nothing')
    const result = await home.run(['db', command, '--data-dir', dataDir, ...flags])
    expect([result.code, `${result.stdout}${result.stderr}`]).toEqual([
      code,
      expect.stringMatching(/There is no database in |Ended 0 connections/),
    ])
    expect(existsSync(dataDir)).toBe(false)
  },
)
