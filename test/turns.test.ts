import { globSync, readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { inTurn } from './databases.ts'
import { isSoak } from './depth.ts'

const ran: string[] = []

inTurn((open) => {
  const runs = (name: string) => async () => {
    const { storage } = await open()
    ran.push(`${name} on ${storage.dialect}`)
  }
  it('first', runs('first'))
  it('second', runs('second'))
  it('third', runs('third'))
})

it('each test of a suite in turn runs on one database, and the next one on the other; in the soak on both', () => {
  expect(ran).toEqual(
    isSoak
      ? ['sqlite', 'postgres'].flatMap((kind) =>
          ['first', 'second', 'third'].map((name) => `${name} on ${kind}`),
        )
      : ['first on sqlite', 'third on sqlite', 'second on postgres'],
  )
})

it('no test in turn knows its database: what it proves of one it would not prove of the other', () => {
  const inTurns = globSync('test/*/**/*.test.ts').filter((file) =>
    /\binTurn\(/.test(readFileSync(file, 'utf8')),
  )
  expect(inTurns.length).toBeGreaterThan(30)
  const knowing = inTurns.filter((file) =>
    /\b(databaseUrl|dialect|ctx\.skip)\b/.test(readFileSync(file, 'utf8')),
  )
  expect(knowing).toEqual([])
})
