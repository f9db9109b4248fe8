import { boolean, integer, string } from '@oclif/core/flags'
import { mostChanges } from '../../configuration/contract.ts'

/** What the commands that plan have in common. */
export const planFlags = {
  set: string({
    description: 'Set of files that owns the objects; objects of another set are never touched',
    helpValue: 'NAME',
    default: 'default',
  }),
  adopt: boolean({ description: 'Take over objects that exist and that no set owns' }),
  prune: boolean({ description: 'Delete objects of the set that no file has any more' }),
  'prune-limit': integer({
    description: 'Most deletions; by default a tenth of the objects of a kind',
    helpValue: 'N',
    min: 1,
    max: mostChanges,
    dependsOn: ['prune'],
  }),
}
