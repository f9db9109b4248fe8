import fc from 'fast-check'
import { seed } from './depth.ts'

/** Properties are tried with the same values in each `npm test`, and with others in each soak. */
fc.configureGlobal({ seed })
