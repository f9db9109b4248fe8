import type { Cipher } from '../../core/cipher.ts'
import { foldEmail } from '../../core/email.ts'
import { Problem } from '../../core/errors.ts'
import { newId } from '../../core/new-id.ts'
import { addSeconds, type Instant } from '../../core/time.ts'
import { type AuditFacts, type Call, type HandlersOf, inSteps, type Preparation } from '../../handler.ts'
import { verifyLink } from '../../messages/links.ts'
import type { MailMessage } from '../../messages/ports.ts'
import { queueMail } from '../../messages/queue.ts'
import { alreadyRegistered, verifyEmail, welcome } from '../../messages/templates.ts'
import { decryptOrUnavailable } from '../../storage/key-check.ts'
import type { Db } from '../../storage/open.ts'
import { NewOrganization, NewPartner, NewSite } from '../../tenancy/contract.ts'
import { makeOrg } from '../../tenancy/organizations/rules.ts'
import { makePartner } from '../../tenancy/partners/rules.ts'
import { makeSite } from '../../tenancy/sites/rules.ts'
import { insertOrg, insertPartner, insertSite } from '../../tenancy/store.ts'
import { joinPartner } from '../memberships.ts'
import { hashPassword } from '../password-hash.ts'
import { checkStrength } from '../passwords/strength.ts'
import { partnerAdmin } from '../seeds.ts'
import { newToken, tokenHash } from '../sessions/tokens.ts'
import { findUserByEmail, insertUser } from '../store.ts'
import type { registration } from './contract.ts'
import { freeSlug, linkHours, type Registration, slugOf } from './rules.ts'
import * as store from './store.ts'

type Entries = typeof registration

export type RegistrationDependencies = {
  cipher: Cipher
  /** ENABLE_REGISTRATION: without it the routes return 404. */
  registrationOn: boolean
  /** Whether mail really goes out. Without it no person could follow a link, so accounts are created at once. */
  mailer: { real: boolean }
  publicUrl: () => string
}

const contentAad = (hash: string) => `registrations.content.${hash}` as const

export const registrationHandlers = (keys: RegistrationDependencies): HandlersOf<Entries> => {
  const { cipher, registrationOn, mailer, publicUrl } = keys

  async function prepare({ body, limit }: Preparation<Entries['register']>): Promise<Registration> {
    if (!registrationOn) throw new Problem('not_found')
    const { email, name, password } = body
    await limit('LETTER', `registration ${foldEmail(email)}`)
    await checkStrength(password, 'body.password', [email, name])
    return { email, name, passwordHash: await hashPassword(password), companyName: null }
  }

  /** Gives the same reply, after the same work, whether or not the address has an account. */
  async function begin(db: Db, wanted: Registration, now: Instant, note: (facts: AuditFacts) => void) {
    const known = (await findUserByEmail(db, wanted.email)) !== undefined
    const expiresAt = addSeconds(now, linkHours * 3600)
    const { email: to, name } = wanted
    const send = (mail: MailMessage) => queueMail(db, cipher, mail, now, expiresAt)
    if (!mailer.real && !known) {
      note(await open(db, wanted, null, now))
      await send(welcome({ to, name, url: publicUrl() }))
      return sameReply
    }
    const token = newToken()
    const hash = tokenHash(token)
    const content = cipher.encrypt(JSON.stringify(wanted), contentAad(hash))
    await store.insertRegistration(db, { tokenHash: hash, content, expiresAt: known ? now : expiresAt })
    const proof = verifyEmail({ to, name, url: verifyLink(publicUrl(), token), hours: linkHours })
    await send(known ? alreadyRegistered({ to, name, url: publicUrl() }) : proof)
    note({ resourceName: to, details: { state: known ? 'already registered' : 'address to be proved' } })
    return sameReply
  }

  return {
    register: inSteps<Entries['register'], Registration>({
      prepare,
      run: ({ db, now, note }, wanted) => begin(db, wanted, now, note),
    }),

    registerPartner: inSteps<Entries['registerPartner'], Registration>({
      prepare: async (call) => ({ ...(await prepare(call)), companyName: call.body.companyName }),
      async run({ db, now, note, quota }, wanted) {
        await checkRoom(quota)
        return begin(db, wanted, now, note)
      },
    }),

    async verifyEmail({ db, body, now, note, quota }) {
      if (!registrationOn) throw new Problem('not_found')
      const hash = tokenHash(body.token)
      const waiting = await store.consumeRegistration(db, hash, now)
      const content = waiting && (await decryptOrUnavailable(db, cipher, waiting.content, contentAad(hash)))
      if (!content) throw new Problem('invalid_verification_link')
      const wanted = JSON.parse(content) as Registration
      if (await findUserByEmail(db, wanted.email)) throw new Problem('invalid_verification_link')
      if (wanted.companyName !== null) await checkRoom(quota)
      note(await open(db, wanted, now, now))
      return { success: true, message: 'The address is confirmed. You can sign in now.' }
    },
  }
}

/** A stranger learns no number of partners. */
async function checkRoom(quota: Call<Entries['verifyEmail']>['quota']): Promise<void> {
  await quota({}).catch((error: unknown) => {
    throw error instanceof Problem ? new Problem('quota_exceeded', registrationFull) : error
  })
}

const registrationFull = 'Too many partners wait for approval: ask the operator of the service'

const sameReply = {
  success: true as const,
  message: 'If registration can proceed, you will receive next steps shortly.',
}

/**
 * Creates the account; for a partner, in the same transaction, everything its administrator needs.
 * `emailProvedAt`: null where no mail could prove the address.
 */
async function open(
  db: Db,
  wanted: Registration,
  emailProvedAt: Instant | null,
  now: Instant,
): Promise<AuditFacts> {
  const { email, name, passwordHash, companyName } = wanted
  const userId = newId()
  await insertUser(db, { id: userId, email, name, passwordHash, emailProvedAt }, now)
  const actor = { kind: 'user' as const, id: userId, email }
  if (companyName === null) return { actor, resourceId: userId, resourceName: email }

  const root = slugOf(companyName)
  const slug = freeSlug(root, await store.listTakenSlugs(db, root))
  const made = () => ({ id: newId(), now })
  const partner = makePartner(NewPartner.parse({ name: companyName, slug }), made())
  await insertPartner(db, { ...partner, status: 'pending' })
  const org = makeOrg(NewOrganization.parse({ name: companyName, slug: `${slug}-org` }), partner.id, made())
  await insertOrg(db, org)
  await insertSite(db, makeSite(NewSite.parse({ orgId: org.id, name: 'Main Office' }), made()))
  await joinPartner(
    db,
    { partnerId: partner.id, userId, roleId: partnerAdmin, orgs: 'all', acceptedBy: 'holder' },
    now,
  )
  return {
    actor,
    resourceId: partner.id,
    resourceName: companyName,
    details: { userId, orgId: org.id, status: 'pending' },
  }
}
