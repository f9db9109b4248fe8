import { expect, it } from 'vitest'
import { everyDatabase, inTurn } from './databases.ts'
import { isSoak } from './depth.ts'

const ran: string[] = []

inTurn((kind) => {
  const runs = (name: string) => () => void ran.push(`${name} on ${kind}`)
  it('first', runs('first'))
  it('second', runs('second'))
  it('of every database', everyDatabase, runs('every'))
  it('third', runs('third'))
  it.runIf(kind === 'postgres')('of Postgres', runs('own'))
})

it('each test of a suite in turn runs on one database, and the next one on the other; in the soak on both', () => {
  expect(ran).toEqual(
    isSoak
      ? ['sqlite', 'postgres'].flatMap((kind) => [
          ...['first', 'second', 'every', 'third'].map((name) => `${name} on ${kind}`),
          ...(kind === 'postgres' ? ['own on postgres'] : []),
        ])
      : [
          'first on sqlite',
          'every on sqlite',
          'third on sqlite',
          'second on postgres',
          'every on postgres',
          'own on postgres',
        ],
  )
})
